"""One statement against another: what a verb that waited for a row does with what it finds there.

A third connection holds the row while the verb waits for it, and what becomes of the row in its commit is what the
verb has to see. The time is the database's own, and leases are short where they have to run out.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import time
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import (
    AuthContext,
    Busy,
    Envelope,
    Fenced,
    PayloadCollision,
    Queue,
    Receiver,
    Settlement,
    open_engine,
)
from recovery.repositories import ReceiptRepository
from recovery.schema import tables
from tests.plugins.queues import Stored

AUTH = AuthContext("agent-a")
PATIENCE_SECONDS = 30.0
SHORT_SECONDS = 0.6
LONG_SECONDS = 3600.0
ROUNDS = 100
PLANS = ("enable_nestloop", "enable_hashjoin", "enable_indexscan")
WAITING = sa.text(
    "SELECT extract(epoch FROM clock_timestamp())::float8 FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
NOW = sa.text("SELECT extract(epoch FROM clock_timestamp())::float8")


def message(number=0, **changes):
    """A message of agent-a."""
    return Envelope(f"m-{number}", "agent-a", {"n": 1}, 4e9, **changes)


def outcome(call):
    """What a call returned, or the error of the contract that it raised."""
    try:
        return call()
    except (Fenced, PayloadCollision, Busy) as error:
        return error


def is_refused(got):
    """Whether what came out is a refusal, alone or as the one verdict of a batch."""
    return isinstance(got[0].error if isinstance(got, list) else got, Fenced)


TASK_VERBS = {
    "renew": lambda queue, claim: queue.renew(claim),
    "finish": lambda queue, claim: queue.finish(claim, 1),
    "finish_batch": lambda queue, claim: queue.finish_batch([(claim, 1)]),
    "finish_and_claim": lambda queue, claim: queue.finish_and_claim(claim, 1),
    "fail": lambda queue, claim: queue.fail(claim, "no"),
    "release": lambda queue, claim: queue.release(claim),
}
REPLY_VERBS = {
    "renew_reply": lambda queue, delivery: queue.renew_reply(delivery),
    "settle": lambda queue, delivery: queue.settle(delivery, delivered=True),
    "settle_batch": lambda queue, delivery: queue.settle_batch([Settlement(delivery, delivered=True)]),
}
task_verbs = pytest.mark.parametrize("call", TASK_VERBS.values(), ids=TASK_VERBS.keys())
reply_verbs = pytest.mark.parametrize("call", REPLY_VERBS.values(), ids=REPLY_VERBS.keys())


@pytest.fixture(params=["plain", "serializable", "repeatable read", "plans"])
def settings(request, postgres_database):
    """A database whose own settings say something else than the library wants, or force other plans."""
    name = sa.make_url(postgres_database).database
    said = {"serializable": ["default_transaction_isolation = 'serializable'"]}
    said["repeatable read"] = ["default_transaction_isolation = 'repeatable read'"]
    # A plan that is forced looks so dear that the server would compile it, for longer than a lease lasts.
    said["plans"] = ["jit = off", *(f"{plan} = off" for plan in PLANS)]
    engine = open_engine(postgres_database)
    with engine.begin() as connection:
        for setting in said.get(request.param, []):
            connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET {setting}')
    engine.dispose()
    return postgres_database


class Bench:
    """A queue in one thread, and a connection that holds what the queue wants."""

    def __init__(self, url, pool, queue, stored):
        self.pool, self.queue, self.stored = pool, queue, stored
        self.url, self.engine = url, stored.engine

    def claimed(self, number=0, **changes):
        """A task that is held."""
        self.queue.receive(message(number, **changes), AUTH)
        return self.queue.claim("one")

    def delivering(self, number=0):
        """A reply that is held."""
        self.queue.finish(self.claimed(number), 1)
        return self.queue.claim_reply("one")

    @contextlib.contextmanager
    def held(self, table, identity):
        """The row is locked by a connection that is handed out, and that commits at the end."""
        key = next(iter(table.primary_key))
        with self.engine.connect() as holder:
            holder.execute(sa.select(key).where(key == identity).with_for_update())
            yield holder
            holder.commit()

    def waits(self, call):
        """Start a call in its thread, and return its future and when it was seen waiting."""
        future = self.pool.submit(outcome, call)
        until = time.monotonic() + PATIENCE_SECONDS
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
            while time.monotonic() < until:
                seen = watcher.execute(WAITING).scalars().first()
                if seen is not None:
                    return future, seen
                assert not future.done(), f"it did not wait: {future.result()}"
        raise AssertionError("nobody waited for the row")

    def until_waiting(self, count):
        """Wait until so many connections wait for a lock."""
        until = time.monotonic() + PATIENCE_SECONDS
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
            while len(watcher.execute(WAITING).all()) < count:
                assert time.monotonic() < until, "they did not wait"
                time.sleep(0.01)

    def until(self, moment):
        """Wait for a moment of the server's clock."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
            while watcher.execute(NOW).scalar_one() < moment:
                time.sleep(0.01)


@contextlib.contextmanager
def bench_of(url, lease_seconds):
    """A bench over a database, with leases of that length."""
    with (
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        Queue.open(url, allowed_sources={"agent-a"}, lease_seconds=lease_seconds, backoff=0.0) as queue,
    ):
        stored = Stored(url)
        yield Bench(url, pool, queue, stored)
        stored.engine.dispose()


@pytest.fixture
def bench(settings):
    """Leases that outlast the test."""
    with bench_of(settings, LONG_SECONDS) as found:
        yield found


@pytest.fixture
def short_bench(settings):
    """Leases that end while a verb waits."""
    with bench_of(settings, SHORT_SECONDS) as found:
        yield found


# A claim that ran out while it waited


@task_verbs
def test_a_lease_that_ended_meanwhile(short_bench, call):
    """The holder changes nothing, but the lease ends while the verb waits: it is refused, and nothing changes."""
    _ended_meanwhile(short_bench, short_bench.claimed(), tables().tasks, call)


@reply_verbs
def test_a_delivery_that_ended_meanwhile(short_bench, call):
    """The same for a delivery."""
    _ended_meanwhile(short_bench, short_bench.delivering(), tables().outbox, call)


def _ended_meanwhile(bench, claim, table, call):
    identity = claim.task_id if table is tables().tasks else claim.reply_id
    with bench.held(table, identity):
        future, since = bench.waits(lambda: call(bench.queue, claim))
        assert since < claim.lease_until, "the machine was too slow for this test"
        before = bench.stored.contents()
        bench.until(claim.lease_until)
        assert not future.done()
    got = future.result(PATIENCE_SECONDS)
    assert is_refused(got), got
    assert "lease is over" in str(got[0].error if isinstance(got, list) else got)
    assert before == bench.stored.contents()


@pytest.mark.parametrize("kind", ["tasks", "replies"])
def test_the_clock_is_read_after_the_last_lock(postgres_database, kind):
    """In a batch the clock is read when the last row is locked: what ran out until then is refused."""
    with bench_of(postgres_database, SHORT_SECONDS) as bench:
        bench.queue.receive_all([message(number) for number in range(3)], AUTH)
        held: list[Any] = bench.queue.claim_batch("one", 3)
        table, key = tables().tasks, "task_id"
        if kind == "replies":
            bench.queue.finish_batch([(claim, 1) for claim in held])
            held, table, key = bench.queue.claim_reply_batch("one", 3), tables().outbox, "reply_id"
        held.sort(key=lambda one: getattr(one, key))
        with bench.held(table, getattr(held[-1], key)):
            future, since = bench.waits(lambda: _end_all(bench.queue, kind, held))
            assert since < held[0].lease_until, "the machine was too slow for this test"
            bench.until(held[0].lease_until)
        assert ["its lease is over"] * 3 == [getattr(one.error, "why", None) for one in future.result(PATIENCE_SECONDS)]


@task_verbs
def test_a_lease_that_the_holder_moved_into_the_past(bench, call):
    """What the holder's commit made of the lease counts, not what the verb saw before it waited."""
    claim = bench.claimed()
    tasks = tables().tasks
    with bench.held(tasks, claim.task_id) as holder:
        future, _ = bench.waits(lambda: call(bench.queue, claim))
        holder.execute(sa.update(tasks).values(lease_until=1.0))
    got = future.result(PATIENCE_SECONDS)
    assert is_refused(got), got
    assert (["running"], [1]) == ([row["state"] for row in bench.stored.rows("tasks")], [claim.fence])
    assert [] == bench.stored.rows("outbox")


# What the holder made of the row


@task_verbs
def test_renewed_by_the_holder(short_bench, call):
    """A lease that the holder prolonged is good, though the one that was seen before the wait is over."""
    claim = short_bench.claimed()
    tasks = tables().tasks
    with short_bench.held(tasks, claim.task_id) as holder:
        future, since = short_bench.waits(lambda: call(short_bench.queue, claim))
        assert since < claim.lease_until, "the machine was too slow for this test"
        short_bench.until(claim.lease_until)
        holder.execute(sa.update(tasks).values(lease_until=claim.lease_until + LONG_SECONDS))
    got = future.result(PATIENCE_SECONDS)
    assert not is_refused(got), got
    task = short_bench.queue.task(claim.task_id)
    assert task.lease_until != claim.lease_until + LONG_SECONDS


@reply_verbs
def test_a_delivery_renewed_by_the_holder(short_bench, call):
    """The same for a delivery."""
    delivery = short_bench.delivering()
    outbox = tables().outbox
    with short_bench.held(outbox, delivery.reply_id) as holder:
        future, since = short_bench.waits(lambda: call(short_bench.queue, delivery))
        assert since < delivery.lease_until, "the machine was too slow for this test"
        short_bench.until(delivery.lease_until)
        holder.execute(sa.update(outbox).values(lease_until=delivery.lease_until + LONG_SECONDS))
    assert not is_refused(future.result(PATIENCE_SECONDS))
    assert short_bench.queue.replies()[0].lease_until != delivery.lease_until + LONG_SECONDS


CHANGES = {
    "reclaimed": {"owner": "two", "last_owner": "two", "fence": 2, "attempts": 2},
    "reclaimed by the same owner": {"fence": 2, "attempts": 2},
    "handed over": {"owner": "two", "last_owner": "two"},
    "freed": {"state": "pending", "owner": None, "lease_until": None},
    "cancelled": {"state": "cancelled", "owner": None, "lease_until": None, "reason": "no", "ended_at": 1.0},
    "finished otherwise": {"state": "done", "owner": None, "lease_until": None, "result": '"other"', "ended_at": 1.0},
    "deadline": {"deadline": 1.0},
}


@task_verbs
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_lost_to_the_holder(postgres_database, call, change):
    """Whatever the holder's commit made of the task, a verb whose claim is lost by it changes nothing."""
    with bench_of(postgres_database, LONG_SECONDS) as bench:
        claim = bench.claimed()
        tasks = tables().tasks
        with bench.held(tasks, claim.task_id) as holder:
            future, _ = bench.waits(lambda: call(bench.queue, claim))
            holder.execute(sa.update(tasks).values(**change))
            bench.queue.receive(message("next"), AUTH)
            holder.commit()
            got = future.result(PATIENCE_SECONDS)
        assert is_refused(got), got
        contents = bench.stored.contents()
        row = next(row for row in contents["tasks"] if row["task_id"] == claim.task_id)
        assert change.items() <= row.items()
        assert ([], ["pending"]) == (contents["outbox"], [r["state"] for r in contents["tasks"] if r is not row])
        assert ["pending", "running", "pending"] == [row["to_state"] for row in contents["journal"]]


REPLY_CHANGES = {
    "reclaimed": {"owner": "two", "last_owner": "two", "fence": 2, "attempts": 2},
    "freed": {"state": "pending", "owner": None, "lease_until": None},
    "sent": {"state": "sent", "owner": None, "lease_until": None, "settled_at": 1.0},
}


@reply_verbs
@pytest.mark.parametrize("change", REPLY_CHANGES.values(), ids=REPLY_CHANGES.keys())
def test_a_delivery_lost_to_the_holder(postgres_database, call, change):
    """The same for a delivery."""
    with bench_of(postgres_database, LONG_SECONDS) as bench:
        delivery = bench.delivering()
        outbox = tables().outbox
        journal = len(bench.stored.rows("journal"))
        with bench.held(outbox, delivery.reply_id) as holder:
            future, _ = bench.waits(lambda: call(bench.queue, delivery))
            holder.execute(sa.update(outbox).values(**change))
        assert is_refused(future.result(PATIENCE_SECONDS))
        assert change.items() <= bench.stored.rows("outbox")[0].items()
        assert journal == len(bench.stored.rows("journal"))


@pytest.mark.parametrize("verb", ["finish", "finish_batch", "finish_and_claim"])
def test_finished_by_the_same_claim_meanwhile(bench, verb):
    """A worker whose answer was lost asks again while its first try is not committed yet: both are right."""
    claim = bench.claimed()
    bench.queue.receive(message("next"), AUTH)
    with bench.engine.connect() as holder, holder.begin():
        holder.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        bench.queue.on(holder).finish(claim, 1)
        future, _ = bench.waits(lambda: TASK_VERBS[verb](bench.queue, claim))
    got = future.result(PATIENCE_SECONDS)
    assert not is_refused(got), got
    assert 1 == len(bench.stored.rows("outbox"))
    assert 1 == [row["to_state"] for row in bench.stored.rows("journal")].count("done")


def test_a_claim_that_was_not_committed_when_it_was_used(bench):
    """A claim handed on before its commit is good once that is there, and is no damage before."""
    bench.queue.receive(message(), AUTH)
    with bench.engine.connect() as holder, holder.begin():
        holder.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        claim = bench.queue.on(holder).claim("one")
        future, _ = bench.waits(lambda: bench.queue.finish_batch([(claim, 1)]))
    assert [None] == [one.error for one in future.result(PATIENCE_SECONDS)]
    assert ["done"] == [row["state"] for row in bench.stored.rows("tasks")]


# Receiving and accepting


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("other", [{}, {"priority": 1}], ids=["same", "other"])
def test_receive_waits_for_another_sender(bench, ending, other):
    """A message waits for the one that is being stored: then it is a duplicate, a collision, or new after all."""
    with bench.engine.connect() as holder, holder.begin() as transaction:
        holder.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        first = bench.queue.on(holder).receive(message(), AUTH)
        future, _ = bench.waits(lambda: bench.queue.receive_all([message("a"), message(**other)], AUTH))
        getattr(transaction, ending)()
    got = future.result(PATIENCE_SECONDS)
    stored = {row["message_id"] for row in bench.stored.rows("tasks") for row in bench.stored.rows("inbox")}
    if ending == "rollback":
        assert ([False, False], {"m-a", "m-0"}) == ([ack.duplicate for ack in got], stored)
    elif other:
        assert (PayloadCollision, {"m-0"}) == (type(got), stored)
    else:
        assert ([False, True], first.task_id) == ([ack.duplicate for ack in got], got[1].task_id)
    assert len(stored) == len(bench.stored.rows("tasks"))


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("payload", ["same", "other"])
def test_accept_waits_for_another_delivery(bench, ending, payload):
    """A delivery waits for the one that is being stored: then it is a duplicate, a collision, or new after all."""
    receipts, effects = tables().receipts, tables().effects
    with Receiver.open(bench.url) as receiver, bench.engine.connect() as holder:
        with holder.begin() as transaction:
            holder.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            ReceiptRepository(holder).accept("r-1", "same")
            future, _ = bench.waits(lambda: receiver.accept("r-1", payload))
            getattr(transaction, ending)()
        got = future.result(PATIENCE_SECONDS)
    if ending == "rollback":
        assert not got.duplicate
    elif payload == "other":
        assert isinstance(got, PayloadCollision)
    else:
        assert got.duplicate
    expected = payload if ending == "rollback" else "same"
    assert [expected] == [row["payload"] for row in bench.stored.rows(receipts.name)]
    assert 1 == len(bench.stored.rows(effects.name))


# Many at once


def test_batches_in_opposite_orders(settings):
    """Two workers that finish the same claims in opposite orders never deadlock, and each task ends once."""
    with (
        Queue.open(settings, allowed_sources={"agent-a"}) as one,
        Queue.open(settings, allowed_sources={"agent-a"}) as two,
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        for number in range(ROUNDS):
            one.receive_all([message(f"{number}-{n}") for n in range(6)], AUTH)
            pairs = [(claim, 1) for claim in one.claim_batch("one", 6)]
            random.Random(number).shuffle(pairs)
            got = [pool.submit(one.finish_batch, pairs), pool.submit(two.finish_batch, pairs[::-1])]
            assert [[True] * 6] * 2 == [[verdict.ok for verdict in each.result(PATIENCE_SECONDS)] for each in got]
        assert (ROUNDS * 6, ROUNDS * 6) == (one.counts().ended["done"], len(one.replies()))


@pytest.mark.parametrize("kind", ["tasks", "replies"])
def test_opposite_orders_in_the_middle(settings, kind):
    """Two batches wait while somebody holds a row in their middle: they lock in one order, without a deadlock."""
    with bench_of(settings, LONG_SECONDS) as bench, concurrent.futures.ThreadPoolExecutor(2) as pool:
        bench.queue.receive_all([message(number) for number in range(9)], AUTH)
        held: list[Any] = bench.queue.claim_batch("one", 9)
        table = tables().tasks
        if kind == "replies":
            bench.queue.finish_batch([(claim, 1) for claim in held])
            held, table = bench.queue.claim_reply_batch("one", 9), tables().outbox
        key = "task_id" if kind == "tasks" else "reply_id"
        orders = [
            sorted(held, key=lambda one: getattr(one, key)),
            sorted(held, key=lambda one: getattr(one, key))[::-1],
        ]
        deadlocks: list[sa.Connection] = []
        sa.event.listen(bench.queue.engine, "rollback", deadlocks.append)
        with bench.held(table, getattr(orders[0][4], key)):
            futures = [pool.submit(_end_all, bench.queue, kind, order) for order in orders]
            bench.until_waiting(2)
        verdicts = [future.result(PATIENCE_SECONDS) for future in futures]
        good = [all(one.ok for one in each) for each in verdicts]
        assert ([True, True] if kind == "tasks" else [False, True]) == sorted(good)
        assert 9 == len({one.identity for each in verdicts for one in each if one.ok})
        assert [] == deadlocks


def _end_all(queue, kind, held):
    if kind == "tasks":
        return queue.finish_batch([(one, 1) for one in held])
    return queue.settle_batch([Settlement(one, delivered=True) for one in held])


def test_eight_threads_claim_batches(settings):
    """Five hundred tasks, eight threads that take ten at a time: each task is taken exactly once."""
    with Queue.open(settings, allowed_sources={"agent-a"}) as queue, concurrent.futures.ThreadPoolExecutor(8) as pool:
        queue.receive_all([message(number, priority=number % 3) for number in range(500)], AUTH)

        def work(name):
            found = []
            while batch := queue.claim_batch(name, 10):
                assert len(batch) <= 10
                found += [(claim.task_id, claim.fence) for claim in batch]
            return found

        taken = [one for each in pool.map(work, [f"w-{n}" for n in range(8)]) for one in each]
        assert (500, {1}) == (len(set(taken)), {fence for _, fence in taken})
        assert (500, 500) == (len(taken), queue.counts().open["running"])


def test_finish_and_claim_by_eight_threads(settings):
    """Eight threads that finish one and take the next get through every task once."""
    with Queue.open(settings, allowed_sources={"agent-a"}) as queue, concurrent.futures.ThreadPoolExecutor(8) as pool:
        queue.receive_all([message(number) for number in range(200)], AUTH)

        def work(name):
            found = []
            claim = queue.claim(name)
            while claim is not None:
                found.append(claim.task_id)
                claim = queue.finish_and_claim(claim, 1)
            return found

        taken = [one for each in pool.map(work, [f"w-{n}" for n in range(8)]) for one in each]
        assert (200, 200) == (len(taken), len(set(taken)))
        assert (200, 200) == (queue.counts().ended["done"], len(queue.replies()))
