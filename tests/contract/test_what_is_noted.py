"""What the journal notes of each move, word for word; the order among several queues; and what outlives a try."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from recovery import Settings, Settlement, states
from recovery.repositories.inbox import InboxRepository
from recovery.repositories.journal import ROWS_MAX, JournalRepository
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.tasks import TaskRepository
from recovery.schema import tables
from tests.plugins.queues import AUTH, SOURCES, envelope

WHO = ("subject", "from_state", "to_state", "owner", "fence", "attempt", "why")
LATE, SPENT = states.DEADLINE_REACHED, states.ATTEMPTS_EXHAUSTED
CALLED_OFF = states.CANCELLED_BY_SCHEDULER


def over(queue, clock):
    """Let a lease run out, and settle it."""
    clock.advance(10)
    queue.reconcile()


MOVES = {
    "fail": (lambda queue, claim, _: queue.fail(claim, "no"), 1000.0, ("pending", "no")),
    "fail for good": (lambda queue, claim, _: queue.fail(claim, "no", retryable=False), 1000.0, ("failed", "no")),
    "release": (lambda queue, claim, _: queue.release(claim), 1000.0, ("pending", "released")),
    "cancel": (lambda queue, claim, _: queue.cancel(claim.task_id), 1000.0, ("cancelled", CALLED_OFF)),
    "finish": (lambda queue, claim, _: queue.finish(claim, 1), 1000.0, ("done", "finished")),
    "lease over": (lambda queue, _, clock: over(queue, clock), 1010.0, ("pending", "lease over")),
}


@pytest.mark.parametrize(("move", "at", "expected"), MOVES.values(), ids=MOVES.keys())
def test_a_move_of_a_running_task(queue, clock, stored, move, at, expected):
    """Who had it, under which fence, at which attempt, and why it went where it is."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    assert ("task", "pending", "running", "w", 1, 1, "claimed") == noted(stored, 1)
    move(queue, claim, clock)
    target, why = expected
    assert ("task", "running", target, "w", 1, 1, why) == noted(stored, 2)
    assert at == stored.rows("journal")[2]["at"]
    if target in states.TASK_ENDED:
        assert ("reply", "new", "pending", None, 0, 0, f"task {target}") == noted(stored, 3)


LAST = {
    "fail": (lambda queue, claim, _: queue.fail(claim, "no"), "failed", "no", "no"),
    "release": (lambda queue, claim, _: queue.release(claim), "failed", "released", SPENT),
    "lease over": (lambda queue, _, clock: over(queue, clock), "failed", SPENT, SPENT),
}


@pytest.mark.parametrize(("move", "state", "why", "reason"), LAST.values(), ids=LAST.keys())
def test_the_last_attempt(queue, clock, stored, move, state, why, reason):
    """Where no attempt is left, the move is noted with what happened, and the row has the reason of the end."""
    queue.receive(envelope(max_attempts=1), AUTH)
    claim = queue.claim("w")
    move(queue, claim, clock)
    assert ("task", "running", state, "w", 1, 1, why) == noted(stored, 2)
    assert (state, reason) == (queue.task(claim.task_id).state, queue.task(claim.task_id).reason)


def test_a_failure_that_cannot_be_tried_again(queue, clock, stored):
    """Where the wait would pass the deadline the task is expired at once; what failed is kept."""
    queue.receive(envelope(deadline=1002.0), AUTH)
    claim = queue.claim("w")
    assert "expired" == queue.fail(claim, "no")
    assert ("task", "running", "expired", "w", 1, 1, LATE) == noted(stored, 2)
    (row,) = stored.rows("tasks")
    assert ("expired", LATE, "no", None, None) == tuple(
        row[name] for name in ("state", "reason", "last_error", "owner", "lease_until")
    )


def noted(stored, place):
    """What the journal says in one of its rows, beside the time and the task."""
    row = stored.rows("journal")[place]
    return tuple(row[name] for name in WHO)


def test_among_several_queues_what_became_due_first(queue, clock):
    """Within a priority, what became due first comes first, in whichever queue, though another arrived before it."""
    first = queue.receive(envelope("a", queue="x"), AUTH).task_id
    queue.fail(queue.claim("w", ("x",)), "no")
    clock.advance(1)
    second = queue.receive(envelope("b", queue="y"), AUTH).task_id
    clock.advance(1)
    assert [second, first] == [queue.claim("w", ("x", "y")).task_id, queue.claim("w", ("x", "y")).task_id]


def test_a_journal_that_is_too_long(queue, stored):
    """At most a thousand rows are told of a task, the first ones: what is in memory of it is bounded."""
    task_id = queue.receive(envelope(), AUTH).task_id
    (row,) = stored.rows("journal")
    del row["seq"]
    more = [{**row, "at": 1001.0 + place} for place in range(ROWS_MAX)]
    with stored.engine.begin() as connection:
        connection.execute(sa.insert(tables().journal), more)
    with stored.engine.connect() as connection:
        steps = JournalRepository(connection, Settings()).of(task_id)
    assert [1000.0 + place for place in range(ROWS_MAX)] == [step.at for step in steps]


def test_what_is_given_outlives_a_try(queue, clock, stored):
    """A transaction that is tried again gets what the first one read from an iterator, which gives it only once."""
    settings = Settings(clock=clock, allowed_sources=SOURCES)
    kept: dict[str, Any] = {}
    given = iter([envelope("a"), envelope("b")])
    acks = tried_twice(stored, lambda at: InboxRepository(at, settings, kept).receive_all(given, AUTH))
    assert [False, False] == [ack.duplicate for ack in acks]
    claims, kept = queue.claim_batch("w", 5), {}
    pairs = ((claim, 1) for claim in claims)
    verdicts = tried_twice(stored, lambda at: TaskRepository(at, settings, kept).finish_batch(pairs))
    assert ["done", "done"] == [verdict.state for verdict in verdicts]
    held, kept = queue.claim_reply_batch("d", 5), {}
    outcomes = (Settlement(one, delivered=True) for one in held)
    verdicts = tried_twice(stored, lambda at: OutboxRepository(at, settings, kept).settle_batch(outcomes))
    assert ["sent", "sent"] == [verdict.state for verdict in verdicts]


def tried_twice(stored, work):
    """Run work in a transaction that is rolled back, and once more in one that is not."""
    with stored.engine.connect() as connection:
        work(connection)
        connection.rollback()
    with stored.engine.begin() as connection:
        return work(connection)
