"""Two connections want the same row: one moment after another by hand, then a hundred times as it comes."""

from __future__ import annotations

import concurrent.futures
import re
import threading
import time

import pytest
import sqlalchemy as sa

from recovery import AuthContext, Claim, Envelope, Fenced, ManualClock, PayloadCollision, Queue, Receiver
from recovery.backend import of

AUTH = AuthContext("agent-a")
LEASE_SECONDS = 10.0
PATIENCE_SECONDS = 15.0
OTHER_SECONDS = 0.2
"""How long the first of two waits, in the middle, for a second that may have to wait for the first."""
ROUNDS = range(100)
WRITES = re.compile(r"INSERT INTO|UPDATE \w+ SET")

moments = pytest.mark.parametrize("moment", ["before", "after", "commit"])


def message(number=0, text="same"):
    """A message that differs in its content by `text`."""
    return Envelope(f"m-{number}", "agent-a", {"text": text}, deadline=4e9)


class Pause:
    """Stops an engine `before` or `after` its next write, or before the next `commit`, until it is let go."""

    def __init__(self, engine, moment):
        self.reached, self.go_on = threading.Event(), threading.Event()
        if moment == "commit":
            sa.event.listen(engine, "commit", self._wait)
        else:
            sa.event.listen(engine, f"{moment}_cursor_execute", self._wait_at_a_write)

    def _wait_at_a_write(self, connection, cursor, statement, *_):
        if WRITES.search(statement):
            self._wait(connection)

    def _wait(self, connection):
        if not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE_SECONDS), "nobody let the first one go on"


def has_one_writer(engine):
    """Whether a transaction that writes keeps all others out from its BEGIN to its end, and not row by row."""
    return engine.dialect.name == "sqlite"


def locks_nothing_yet(engine, moment):
    """Whether a verb stands before its first lock: where it is one statement, that locks and writes at once."""
    return of(engine).composes and moment == "before"


def outcome(call):
    """What a call returned, or the error of the contract that it raised."""
    try:
        return call()
    except (Fenced, PayloadCollision) as error:
        return error


@pytest.fixture
def threads():
    """Two threads."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def one_in_the_middle(threads):
    """Runs a call up to a moment, then another call, then the rest of the first; returns both outcomes."""

    def race(engine, moment, first, second):
        pause = Pause(engine, moment)
        try:
            one = threads.submit(outcome, first)
            assert pause.reached.wait(PATIENCE_SECONDS), "the first one never came to that moment"
            two = threads.submit(outcome, second)
            done, _ = concurrent.futures.wait([two], timeout=OTHER_SECONDS)
            assert not (done and has_one_writer(engine)), "the second one did not wait for the write lock"
        finally:
            pause.go_on.set()
        return one.result(PATIENCE_SECONDS), two.result(PATIENCE_SECONDS)

    return race


@pytest.fixture
def at_once(threads):
    """Starts two calls from one barrier and returns both outcomes."""
    barrier = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def started(call):
        barrier.wait()
        return outcome(call)

    def race(first, second):
        one, two = threads.submit(started, first), threads.submit(started, second)
        return one.result(PATIENCE_SECONDS), two.result(PATIENCE_SECONDS)

    return race


@pytest.fixture
def clock():
    """The clock of both queues."""
    return ManualClock()


@pytest.fixture
def queues(database, clock):
    """Two queues over one database, each with connections of its own."""
    settings = {"allowed_sources": {"agent-a"}, "lease_seconds": LEASE_SECONDS, "clock": clock, "backoff": 0.0}
    with Queue.open(database, **settings) as one, Queue.open(database, **settings) as two:
        yield one, two


@pytest.fixture
def receivers(database):
    """Two doors to one receiver."""
    with Receiver.open(database) as one, Receiver.open(database) as two:
        yield one, two


def statuses(queue, task_id):
    """The status of each reply of a task."""
    return [reply.status for reply in queue.replies(task_id)]


def claimed(queue, number=0):
    """A task that is held."""
    queue.receive(message(number), AUTH)
    return queue.claim("one")


@moments
def test_two_claims_of_one_task(queues, one_in_the_middle, moment):
    """One gets it, and the other gets nothing: never both, and one attempt is spent."""
    one, two = queues
    ack = one.receive(message(), AUTH)
    got = one_in_the_middle(one.engine, moment, lambda: one.claim("one"), lambda: two.claim("two"))
    assert [ack.task_id] == [claim.task_id for claim in got if claim is not None]
    assert (1, 1) == (one.task(ack.task_id).attempts, one.task(ack.task_id).fence)


@moments
def test_a_reclaim_in_the_middle_of_a_finish(queues, clock, one_in_the_middle, moment):
    """A finish that proved its lease on the locked row ends the task, though the lease ends before its commit.

    One that has no lock yet is too late.
    """
    one, two = queues
    claim = claimed(one)

    def reclaim():
        clock.advance(LEASE_SECONDS)
        return two.claim("two")

    got = one_in_the_middle(one.engine, moment, lambda: one.finish(claim, "answer"), reclaim)
    if locks_nothing_yet(one.engine, moment):
        assert (Fenced, 2, "two") == (type(got[0]), got[1].fence, got[1].owner)
        assert ("running", []) == (one.task(claim.task_id).state, statuses(one, claim.task_id))
        return
    assert (None, None) == got
    assert ("done", ["done"]) == (one.task(claim.task_id).state, statuses(one, claim.task_id))


@moments
def test_a_finish_in_the_middle_of_a_reclaim(queues, clock, one_in_the_middle, moment):
    """A lease that is over is lost, and the finish that waits for the row is refused and leaves no reply."""
    one, two = queues
    claim = claimed(one)
    clock.advance(LEASE_SECONDS)
    again, refused = one_in_the_middle(
        two.engine, moment, lambda: two.claim("two"), lambda: one.finish(claim, "answer")
    )
    assert (2, "two", Fenced) == (again.fence, again.owner, type(refused))
    assert ("running", []) == (one.task(claim.task_id).state, statuses(one, claim.task_id))


@moments
def test_a_cancel_in_the_middle_of_a_finish(queues, one_in_the_middle, moment):
    """Who has the row first ends the task: a finish, and the cancel says that it came too late; or the cancel."""
    one, two = queues
    claim = claimed(one)
    got = one_in_the_middle(one.engine, moment, lambda: one.finish(claim, "answer"), lambda: two.cancel(claim.task_id))
    if locks_nothing_yet(one.engine, moment):
        assert (Fenced, True) == (type(got[0]), got[1])
        assert ("cancelled", ["cancelled"]) == (one.task(claim.task_id).state, statuses(one, claim.task_id))
        return
    assert (None, False) == got
    assert ("done", ["done"]) == (one.task(claim.task_id).state, statuses(one, claim.task_id))


@moments
def test_a_finish_in_the_middle_of_a_cancel(queues, one_in_the_middle, moment):
    """The cancel has the row first: the task is cancelled, and the finish is refused."""
    one, two = queues
    claim = claimed(one)
    was_cancelled, refused = one_in_the_middle(
        two.engine, moment, lambda: two.cancel(claim.task_id), lambda: one.finish(claim, "answer")
    )
    assert (True, Fenced) == (was_cancelled, type(refused))
    assert ("cancelled", ["cancelled"]) == (one.task(claim.task_id).state, statuses(one, claim.task_id))


@moments
def test_two_receives_of_the_same_message(queues, one_in_the_middle, moment):
    """One is new and one is a duplicate, under one task id."""
    one, two = queues
    acks = one_in_the_middle(
        one.engine, moment, lambda: one.receive(message(), AUTH), lambda: two.receive(message(), AUTH)
    )
    assert ([False, True], 1) == (sorted(ack.duplicate for ack in acks), len({ack.task_id for ack in acks}))


@moments
def test_two_receives_of_one_id_with_different_content(queues, one_in_the_middle, moment):
    """One is stored and the other is a collision, and what is stored is what was acknowledged."""
    one, two = queues
    got = one_in_the_middle(
        one.engine, moment, lambda: one.receive(message(), AUTH), lambda: two.receive(message(text="other"), AUTH)
    )
    stored_as_acknowledged(one, 0, got)


def stored_as_acknowledged(queue, number, got):
    """One of the two was stored, as its sender sent it, and the other was refused."""
    assert ["Ack", "PayloadCollision"] == sorted(type(one).__name__ for one in got)
    winner = 0 if not isinstance(got[0], PayloadCollision) else 1
    again = queue.receive(message(number, ["same", "other"][winner]), AUTH)
    assert (got[winner].task_id, True) == (again.task_id, again.duplicate)


@moments
def test_two_dispatchers_of_one_reply(queues, receivers, clock, one_in_the_middle, moment):
    """A dispatcher that outlived its lease in the receiver meets the next one there: one effect, one settles."""
    one, two = queues
    claim = claimed(one)
    one.finish(claim, "answer")

    def late():
        clock.advance(LEASE_SECONDS)
        return two.dispatch_once(receivers[1], "two")

    fenced, sent = one_in_the_middle(receivers[0].engine, moment, lambda: one.dispatch_once(receivers[0], "one"), late)
    assert (Fenced, "sent", 1) == (type(fenced), sent.state, receivers[0].effect_count())
    assert ["sent"] == [reply.state for reply in one.replies()]


def test_free_claims(queues, at_once):
    """A hundred tasks, two workers at each: every one is claimed once."""
    one, two = queues
    for number in ROUNDS:
        ack = one.receive(message(number), AUTH)
        got = at_once(lambda: one.claim("one"), lambda: two.claim("two"))
        assert [(ack.task_id, 1)] == [(claim.task_id, claim.fence) for claim in got if claim is not None]


def test_free_finish_against_reclaim(queues, clock, at_once):
    """Never both a finished task and a new claim on it; a finish that was refused leaves no reply."""
    one, two = queues

    def reclaim():
        clock.advance(LEASE_SECONDS)
        return two.claim("two")

    for number in ROUNDS:
        claim = claimed(one, number)
        finished, again = at_once(lambda claim=claim: one.finish(claim, "answer"), reclaim)
        if finished is None:
            assert (None, ["done"]) == (again, statuses(one, claim.task_id))
            continue
        assert (Fenced, []) == (type(finished), statuses(one, claim.task_id))
        # Only where rows are locked one by one may it pass over the row, while the refused finish still has it.
        assert again is not None or not has_one_writer(two.engine)
        held = again or two.claim("two")
        assert (claim.task_id, 2) == (held.task_id, held.fence)
        assert two.cancel(claim.task_id)


def test_free_finish_against_cancel(queues, at_once):
    """Exactly one of them ends the task, and its one reply says which."""
    one, two = queues
    for number in ROUNDS:
        claim = claimed(one, number)
        finished, was_cancelled = at_once(
            lambda claim=claim: one.finish(claim, "answer"), lambda claim=claim: two.cancel(claim.task_id)
        )
        expected = (Fenced, ["cancelled"]) if was_cancelled else (type(None), ["done"])
        assert expected == (type(finished), statuses(one, claim.task_id))


def test_free_receives_of_the_same_message(queues, at_once):
    """Every time one is new and one a duplicate."""
    one, two = queues
    for number in ROUNDS:
        sent = message(number)
        acks = at_once(lambda sent=sent: one.receive(sent, AUTH), lambda sent=sent: two.receive(sent, AUTH))
        assert ([False, True], 1) == (sorted(ack.duplicate for ack in acks), len({ack.task_id for ack in acks}))


def test_free_receives_with_different_content(queues, at_once):
    """Every time one is stored and the other is a collision."""
    one, two = queues
    for number in ROUNDS:
        sent = (message(number), message(number, "other"))
        got = at_once(lambda sent=sent: one.receive(sent[0], AUTH), lambda sent=sent: two.receive(sent[1], AUTH))
        stored_as_acknowledged(one, number, got)


def test_free_dispatchers(queues, receivers, clock, at_once):
    """Two deliveries of each reply reach the receiver at once: one effect, one duplicate, and the later one settles."""
    one, two = queues
    for number in ROUNDS:
        one.finish(claimed(one, number), "answer")
        stale = one.claim_reply("one")
        clock.advance(LEASE_SECONDS)
        fresh = two.claim_reply("two")
        assert (stale.reply_id, 2) == (fresh.reply_id, fresh.fence)
        receipts = at_once(
            lambda held=stale: receivers[0].accept(held.reply_id, held.payload),
            lambda held=fresh: receivers[1].accept(held.reply_id, held.payload),
        )
        assert [False, True] == sorted(receipt.duplicate for receipt in receipts)
        settled = at_once(
            lambda held=stale: one.settle(held, delivered=True), lambda held=fresh: two.settle(held, delivered=True)
        )
        assert (Fenced, "sent") == (type(settled[0]), settled[1])
    assert len(ROUNDS) == receivers[0].effect_count()


def test_free_dispatch_once(queues, receivers, at_once):
    """Two dispatchers that look at the same moment: one of them sends the reply, and the other finds none."""
    one, two = queues
    for number in ROUNDS:
        one.finish(claimed(one, number), "answer")
        got = at_once(lambda: one.dispatch_once(receivers[0], "one"), lambda: two.dispatch_once(receivers[1], "two"))
        assert [("sent", False)] == [(sent.state, sent.duplicate) for sent in got if sent is not None]
    assert len(ROUNDS) == receivers[0].effect_count()


def test_a_reclaim_passes_over_a_row_that_is_held(postgres_database):
    """A claim never waits for a row: it finds nothing now, changes nothing, and the next one gets the task."""
    clock = ManualClock()
    with Queue.open(
        postgres_database, allowed_sources={"agent-a"}, lease_seconds=LEASE_SECONDS, clock=clock, busy_seconds=1.0
    ) as queue:
        held = claimed(queue)
        clock.advance(LEASE_SECONDS)
        with queue.engine.connect() as holder:
            holder.execute(sa.text("SELECT 1 FROM tasks WHERE task_id = :id FOR UPDATE"), {"id": held.task_id})
            assert None is queue.claim("two")
            stored = queue.task(held.task_id)
            assert stored is not None
            assert ("running", "one", 1) == (stored.state, stored.owner, stored.fence)
        again = queue.claim("two")
        assert again is not None
        assert (held.task_id, 2) == (again.task_id, again.fence)


@pytest.mark.parametrize("queues", [("default",), ("default", "other")], ids=["one queue", "two queues"])
def test_a_claim_passes_over_a_task_that_is_locked(postgres_database, queues):
    """A claim takes the next one and never waits, nor takes what somebody has locked; that one is next afterwards."""
    with Queue.open(postgres_database, allowed_sources={"agent-a"}, busy_seconds=1.0) as queue:
        first, second = (queue.receive(message(number), AUTH).task_id for number in (1, 2))
        with queue.engine.connect() as holder:
            holder.execute(sa.text("SELECT 1 FROM tasks WHERE task_id = :id FOR UPDATE"), {"id": first})
            assert [second] == [claim.task_id for claim in queue.claim_batch("one", 5, queues)]
            assert None is queue.claim("one", queues)
            stored = queue.task(first)
            assert stored is not None
            assert ("pending", None, 0) == (stored.state, stored.owner, stored.fence)
        assert [first] == [claim.task_id for claim in queue.claim_batch("one", 5, queues)]


def test_a_claim_that_ran_out_while_it_waited(postgres_database, threads):
    """The clock is read after the row's lock was got: a lease that ended during the wait is refused."""
    lease = 0.5
    with Queue.open(postgres_database, allowed_sources={"agent-a"}, lease_seconds=lease) as queue:
        queue.receive(message(), AUTH)
        with queue.engine.connect() as holder:
            claim = queue.claim("one")
            assert isinstance(claim, Claim)
            holder.execute(sa.text("SELECT 1 FROM tasks WHERE task_id = :id FOR UPDATE"), {"id": claim.task_id})
            finishing = threads.submit(outcome, lambda: queue.finish(claim, "answer"))
            began_waiting_at = waiting_since(queue.engine)
            assert began_waiting_at < claim.lease_until, "the machine was too slow for this test"
            time.sleep(lease)  # The short lease.
            assert not finishing.done()
            holder.rollback()
        refused = finishing.result(PATIENCE_SECONDS)
        assert (Fenced, True) == (type(refused), "lease is over" in str(refused))
        stored = queue.task(claim.task_id)
        assert stored is not None
        assert ("running", []) == (stored.state, statuses(queue, claim.task_id))


def waiting_since(engine):
    """The server's time at which somebody is seen waiting for a lock in this database."""
    asked = sa.text(
        "SELECT extract(epoch FROM clock_timestamp())::float8 FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    until = time.monotonic() + PATIENCE_SECONDS
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
        while time.monotonic() < until:
            seen = watcher.execute(asked).scalars().first()
            if seen is not None:
                return seen
    raise AssertionError("nobody waited for the row")
