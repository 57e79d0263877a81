"""As many as are asked for: how many rows one call settles, what it says of that, and what it never writes to."""

from __future__ import annotations

import pytest

from recovery import Fenced, Settings
from recovery.repositories import leases
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.tasks import TaskRepository
from recovery.schema import tables
from tests.plugins.queues import AUTH, envelope


@pytest.fixture
def due(queue, clock):
    """Three tasks past their deadline and two whose lease is over, at 1010."""
    queue.receive_all([envelope(f"late-{n}", deadline=1010.0, queue="late") for n in range(3)], AUTH)
    queue.receive_all([envelope(f"lost-{n}") for n in range(2)], AUTH)
    queue.claim_batch("w", 2)
    clock.advance(10)


@pytest.mark.usefixtures("due")
@pytest.mark.parametrize(
    ("limits", "expected"),
    [([0, 1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 0]), ([4, 4], [4, 1]), ([3, 3], [3, 2]), ([5, 5], [5, 0])],
    ids=str,
)
def test_tasks(stored, limits, expected):
    """Deadlines first, then leases, and never more than asked for."""
    with stored.engine.begin() as connection:
        room = TaskRepository(connection, Settings())
        assert expected == [room.settle_due(1010.0, limit) for limit in limits]


@pytest.mark.parametrize(("limits", "expected"), [([0, 1, 1, 1, 1], [0, 1, 1, 1, 0]), ([2, 2], [2, 1])], ids=str)
def test_replies(queue, clock, stored, limits, expected):
    """The same of deliveries."""
    for ack in queue.receive_all([envelope(f"m-{n}") for n in range(3)], AUTH):
        queue.cancel(ack.task_id)
    queue.claim_reply_batch("d", 3)
    clock.advance(10)
    with stored.engine.begin() as connection:
        room = OutboxRepository(connection, Settings())
        assert expected == [room.settle_due(1010.0, limit) for limit in limits]


@pytest.mark.parametrize("target", ["pending", "failed"])
def test_a_row_that_has_ended(queue, stored, target):
    """A row that no longer allows the move is not written to, whoever asks for it; what it was is said."""
    task_id = queue.receive(envelope(), AUTH).task_id
    queue.release(queue.claim("w"))
    queue.cancel(task_id)
    before = stored.contents()
    leased = leases.leased_tasks(tables())
    with stored.engine.begin() as connection:
        row = leases.lock(connection, leased, task_id)
        assert row is not None
        with pytest.raises(Fenced) as caught:
            leases.write(connection, leased, [row], target, {"last_error": "no"})
    error = caught.value
    assert (task_id, 1, "the row changed under its lock") == (error.identity, error.fence, error.why)
    assert before == stored.contents()
