"""More that is due than one claim settles, and what is due behind what a connection has looked at before."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import Settings, states
from recovery.repositories.leases import SETTLE_ROWS_MAX
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.tasks import TaskRepository
from recovery.schema import tables
from tests.plugins.queues import AUTH, envelope

MANY = SETTLE_ROWS_MAX + 20


@pytest.fixture
def late(queue, clock):
    """The ids of more tasks than one claim settles, all past their deadline; beside them one that can be claimed."""
    acks = queue.receive_all([envelope(f"m-{n}", deadline=1001.0) for n in range(MANY)], AUTH)
    queue.receive(envelope("free"), AUTH)
    clock.advance(1)
    return {ack.task_id for ack in acks}


def test_a_claim_is_not_held_up(queue, late):
    """It settles as many as it may, and takes what there is beside the rest."""
    free = queue.claim("w")
    assert free.task_id not in late
    assert SETTLE_ROWS_MAX == queue.counts().ended["expired"]
    assert queue.claim("w") is None
    assert len(late) == queue.counts().ended["expired"]


def test_deadlines_and_leases_share_the_bound(queue, clock):
    """Deadlines come first; leases that are over have the rest of the hundred, and no more."""
    queue.receive_all([envelope(f"leased-{n}", max_attempts=1) for n in range(MANY)], AUTH)
    queue.claim_batch("w", MANY)
    queue.receive_all([envelope(f"late-{n}", deadline=1005.0) for n in range(60)], AUTH)
    clock.advance(10)
    assert queue.claim("w") is None
    assert (60, SETTLE_ROWS_MAX - 60) == (queue.counts().ended["expired"], queue.counts().ended["failed"])


def test_deliveries_that_are_over(queue, clock):
    """A claim settles at most a hundred of them too, and takes one of those it freed."""
    for ack in queue.receive_all([envelope(f"m-{n}", deadline=1.0) for n in range(MANY)], AUTH):
        assert "expired" == queue.task(ack.task_id).state
    assert MANY == len(queue.claim_reply_batch("d", MANY))
    clock.advance(10)
    assert SETTLE_ROWS_MAX == len(queue.claim_reply_batch("e", MANY))
    assert MANY - SETTLE_ROWS_MAX == len(queue.claim_reply_batch("e", MANY))


def test_the_ids_of_what_is_due(queue, clock, stored, late):
    """They come in order, a hundred at a time, each time after the last one; from one table and one bound."""
    settings = Settings(clock=clock)
    with stored.engine.connect() as connection:
        tasks, replies = TaskRepository(connection, settings), OutboxRepository(connection, settings)
        first = tasks.due_ids("deadline")
        assert sorted(late)[:SETTLE_ROWS_MAX] == first
        assert sorted(late)[SETTLE_ROWS_MAX:] == tasks.due_ids("deadline", first[-1])
        assert [[], []] == [tasks.due_ids("lease_until"), replies.due_ids()]
    queue.reconcile()
    held = queue.claim_reply_batch("d", MANY)
    clock.advance(10)
    with stored.engine.connect() as connection:
        replies = OutboxRepository(connection, settings)
        ids = sorted(one.reply_id for one in held)
        assert ids[:SETTLE_ROWS_MAX] == replies.due_ids()
        assert ids[SETTLE_ROWS_MAX:] == replies.due_ids(ids[SETTLE_ROWS_MAX - 1])


def test_one_by_one(queue, clock, stored):
    """What is settled by itself is settled at the very moment it is due, once, and by its id alone."""
    settings = Settings(clock=clock)
    late = queue.receive(envelope("late", deadline=1010.0), AUTH).task_id
    lost = queue.receive(envelope("lost"), AUTH).task_id
    queue.claim_batch("w", 2)
    queue.cancel(queue.receive(envelope("ended"), AUTH).task_id)
    held = queue.claim_reply("d").reply_id
    ids = [late, lost, "unknown", 7]
    for seconds, expected in ((9.999, [False] * 5), (0.001, [True, True, False, False, True]), (0, [False] * 5)):
        clock.advance(seconds)
        with stored.engine.begin() as connection:
            tasks, replies = TaskRepository(connection, settings), OutboxRepository(connection, settings)
            assert expected == [*(tasks.settle_one(task_id) for task_id in ids), replies.settle_one(held)]
    assert ["expired", "pending"] == [queue.task(task_id).state for task_id in (late, lost)]
    assert [("pending", states.DELIVERY_LEASE_EXPIRED)] == [
        (one.state, one.last_error) for one in queue.replies() if one.reply_id == held
    ]


def test_a_lease_that_came_in_behind_what_was_looked_at(queue, clock, stored):
    """A transaction that took long may commit what was due before the last look: where nothing else is, it is found."""
    task_id = queue.receive(envelope("a"), AUTH).task_id
    queue.claim("w")
    clock.advance(5)
    queue.receive(envelope("b"), AUTH)
    queue.claim("w")
    tasks = tables().tasks
    with stored.engine.begin() as connection:
        connection.execute(sa.update(tasks).where(tasks.c.task_id == task_id).values(lease_until=1001.0))
    again = queue.claim("w")
    assert (task_id, 2) == (again.task_id, again.fence)


@pytest.mark.parametrize("verb", ["claim_reply", "settle_one"])
def test_the_last_delivery_that_is_over(queue, clock, stored, verb):
    """Where the budget is spent the reply is dead, says why, and is noted so; by whichever verb it is settled."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    for attempt in (1, 2):
        assert attempt == queue.claim_reply("d").attempt
        clock.advance(10)
    held = queue.claim_reply("d")
    assert 3 == held.attempt
    clock.advance(10)
    if verb == "claim_reply":
        assert queue.claim_reply("d") is None
    else:
        with stored.engine.begin() as connection:
            assert OutboxRepository(connection, Settings(clock=clock)).settle_one(held.reply_id)
    (reply,) = queue.replies()
    said = states.DELIVERY_LEASE_EXPIRED
    assert ("dead", said, None, 1030.0) == (reply.state, reply.last_error, reply.lease_until, reply.settled_at)
    last = stored.rows("journal")[-1]
    assert ("reply", "sending", "dead", "d", 3, 3, said) == tuple(
        last[name] for name in ("subject", "from_state", "to_state", "owner", "fence", "attempt", "why")
    )


def test_a_task_whose_last_lease_is_over(queue, clock, stored):
    """The same of a task: it failed, for one reason in the row, the reply and the journal."""
    task_id = queue.receive(envelope(max_attempts=1), AUTH).task_id
    queue.claim("w")
    clock.advance(10)
    assert queue.claim("w") is None
    task = queue.task(task_id)
    said = states.ATTEMPTS_EXHAUSTED
    assert ("failed", said, None, 1010.0) == (task.state, task.reason, task.result, task.ended_at)
    assert (
        f'{{"kind":"result","result":"{said}","status":"failed","task_id":"{task_id}"}}' == queue.replies()[0].payload
    )
    of_task, of_reply = stored.rows("journal")[-2:]
    assert ("running", "failed", "w", 1, 1, said) == tuple(
        of_task[name] for name in ("from_state", "to_state", "owner", "fence", "attempt", "why")
    )
    assert ("new", "pending", None, 0, 0, "task failed") == tuple(
        of_reply[name] for name in ("from_state", "to_state", "owner", "fence", "attempt", "why")
    )
