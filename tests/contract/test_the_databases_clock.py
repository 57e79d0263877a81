"""Without a clock set by hand every verb takes the time from the database: what it writes lies within the call."""

from __future__ import annotations

import time

import pytest
import sqlalchemy as sa

from recovery import Fenced, Settlement
from recovery.schema import tables
from tests.plugins.queues import AUTH, SOURCES, envelope

FAR = 2.0**40
LEASE, DELIVERY_LEASE, WAIT, DELIVERY_WAIT = 500.0, 700.0, 900.0, 1100.0


@pytest.fixture
def timed(door, database_url):
    """A queue with the database's own clock, and a length of its own for each span."""
    return door.queue(
        database_url,
        allowed_sources=SOURCES,
        lease_seconds=LEASE,
        delivery_lease_seconds=DELIVERY_LEASE,
        backoff=WAIT,
        delivery_backoff=DELIVERY_WAIT,
    )


def moment(stored):
    """What the database's clock says, in seconds since the epoch."""
    if stored.engine.dialect.name == "sqlite":
        return time.time()
    with stored.engine.connect() as connection:
        return connection.execute(sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)")).scalar_one()


def during(stored, call):
    """What a call answers, and the moments before and after it."""
    before = moment(stored)
    answer = call()
    return answer, before, moment(stored)


def claimed(queue, *names):
    """A claim on each of some new tasks."""
    for name in names:
        queue.receive(envelope(name, deadline=FAR), AUTH)
    return queue.claim_batch("w", len(names))


def held(queue):
    """A delivery of a task that was cancelled."""
    queue.cancel(queue.receive(envelope(deadline=FAR), AUTH).task_id)
    return queue.claim_reply("d")


def finished_and_claimed(queue):
    """A finish that takes another task."""
    first, _ = claimed(queue, "a", "b")
    queue.receive(envelope("c", deadline=FAR), AUTH)
    return lambda: queue.finish_and_claim(first, 1)


def ended(verb, *args, **kwargs):
    """A verb that ends a claim, prepared."""

    def prepared(queue):
        (claim,) = claimed(queue, "a")
        return lambda: getattr(queue, verb)(claim, *args, **kwargs)

    return prepared


def settled(**outcome):
    """A delivery that is settled, prepared."""

    def prepared(queue):
        delivery = held(queue)
        return lambda: queue.settle(delivery, **outcome)

    return prepared


def batch_finished(queue):
    """Two claims that end together."""
    claims = claimed(queue, "a", "b")
    return lambda: queue.finish_batch([(claim, 1) for claim in claims])


def batch_settled(queue):
    """A delivery that is settled in a batch."""
    delivery = held(queue)
    return lambda: queue.settle_batch([Settlement(delivery, delivered=True)])


def cancelled(queue):
    """A task that is cancelled."""
    task_id = queue.receive(envelope(deadline=FAR), AUTH).task_id
    return lambda: queue.cancel(task_id)


def waiting(queue):
    """A task that is claimed."""
    queue.receive(envelope(deadline=FAR), AUTH)
    return lambda: queue.claim("w")


MOVES = {
    "receive": (lambda queue: lambda: queue.receive(envelope(deadline=FAR), AUTH), 1),
    "receive, too late": (lambda queue: lambda: queue.receive(envelope(deadline=1.0), AUTH), 2),
    "receive_all": (lambda queue: lambda: queue.receive_all([envelope(n, deadline=FAR) for n in "ab"], AUTH), 2),
    "claim": (waiting, 1),
    "finish": (ended("finish", 1), 2),
    "finish_batch": (batch_finished, 4),
    "finish_and_claim": (finished_and_claimed, 3),
    "fail": (ended("fail", "no"), 1),
    "fail for good": (ended("fail", "no", retryable=False), 2),
    "release": (ended("release"), 1),
    "cancel": (cancelled, 2),
    "settle": (settled(delivered=True), 1),
    "settle, away": (settled(delivered=False), 1),
    "settle_batch": (batch_settled, 1),
}


@pytest.mark.parametrize(("prepare", "rows"), MOVES.values(), ids=MOVES.keys())
def test_each_move_has_the_databases_time(timed, stored, prepare, rows):
    """The journal says of each move a moment between before the verb and after it."""
    call = prepare(timed)
    since = len(stored.rows("journal"))
    _, before, after = during(stored, call)
    noted = [row["at"] for row in stored.rows("journal")[since:]]
    assert rows == len(noted)
    assert before <= min(noted) <= max(noted) <= after


def test_leases_begin_with_the_verb(timed, stored):
    """A lease of a task or a delivery, new or longer, is over that long after the verb."""
    timed.receive(envelope(deadline=FAR), AUTH)
    claim, before, after = during(stored, lambda: timed.claim("w"))
    assert before + LEASE <= claim.lease_until <= after + LEASE
    longer, before, after = during(stored, lambda: timed.renew(claim))
    assert before + LEASE <= longer.lease_until <= after + LEASE
    timed.finish(longer, 1)
    delivery, before, after = during(stored, lambda: timed.claim_reply("d"))
    assert before + DELIVERY_LEASE <= delivery.lease_until <= after + DELIVERY_LEASE
    longer, before, after = during(stored, lambda: timed.renew_reply(delivery))
    assert before + DELIVERY_LEASE <= longer.lease_until <= after + DELIVERY_LEASE


def test_waits_begin_with_the_verb(timed, stored):
    """What is to be tried again can be claimed that long after the failure."""
    (claim,) = claimed(timed, "a")
    _, before, after = during(stored, lambda: timed.fail(claim, "no"))
    assert before + WAIT <= timed.task(claim.task_id).available_at <= after + WAIT
    delivery = held(timed)
    _, before, after = during(stored, lambda: timed.settle(delivery, delivered=False))
    (reply,) = timed.replies()
    assert before + DELIVERY_WAIT <= reply.available_at <= after + DELIVERY_WAIT


def test_a_receipt_has_the_databases_time(door, database_url, stored):
    """The receipt and the mark of its effect have one moment, while it was stored."""
    receiver = door.receiver(database_url)
    _, before, after = during(stored, lambda: receiver.accept("reply:1", '"x"'))
    (receipt,), (effect,) = stored.rows("receipts"), stored.rows("effects")
    assert receipt["received_at"] == effect["applied_at"]
    assert before <= receipt["received_at"] <= after


def test_what_is_over_by_the_databases_clock(timed, stored):
    """A lease and a deadline that are long over are over for every verb."""
    lost, late = claimed(timed, "lost", "late")
    tasks = tables().tasks
    with stored.engine.begin() as connection:
        for claim, column in ((lost, "lease_until"), (late, "deadline")):
            connection.execute(sa.update(tasks).where(tasks.c.task_id == claim.task_id).values({column: 1.0}))
    for claim, why in ((lost, "its lease is over"), (late, "its deadline is over")):
        with pytest.raises(Fenced, match=why):
            timed.finish(claim, 1)
        with pytest.raises(Fenced, match=why):
            timed.renew(claim)
    again = timed.claim("w")
    assert (lost.task_id, 2) == (again.task_id, again.fence)
    assert "expired" == timed.task(late.task_id).state
