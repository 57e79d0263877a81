"""Fences: every claim's number is new, above the floor of the database, and the only one that counts."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from recovery import Fenced, states
from recovery.repositories import leases
from recovery.schema import tables
from tests.plugins.queues import AUTH, envelope

FAR = 2**32


def raise_floor(stored, floor):
    """Raise the floor, as a purge or a restore does."""
    with stored.engine.begin() as connection:
        connection.execute(sa.update(tables().fence_floor).values(floor=floor))


def set_fence(stored, task_id, fence):
    """Give a task a fence."""
    tasks = tables().tasks
    with stored.engine.begin() as connection:
        connection.execute(sa.update(tasks).where(tasks.c.task_id == task_id).values(fence=fence))


def sent(queue, message_id="m-1", /, **changes):
    """The task id of a message that was stored."""
    return queue.receive(envelope(message_id, **{"max_attempts": 10, **changes}), AUTH).task_id


def fences(claims):
    """The fence of each claim."""
    return [claim.fence for claim in claims]


def test_a_row_begins_with_fence_zero(queue, stored):
    """A task and a reply that nobody has claimed have fence 0, whatever the floor is."""
    raise_floor(stored, FAR)
    queue.cancel(sent(queue))
    assert ([0], [0]) == ([row["fence"] for row in stored.rows("tasks")], fences(queue.replies()))


def test_a_raised_floor_is_passed_by_the_next_claim(queue, clock, stored):
    """A claim is one above the higher of its task's own fence and the floor, for new and open tasks; none repeats."""
    open_one = sent(queue, "open")
    assert 1 == queue.claim("w").fence
    clock.advance(10)
    raise_floor(stored, 40)
    new_one = sent(queue, "new")
    assert {open_one: 41, new_one: 41} == {claim.task_id: claim.fence for claim in queue.claim_batch("w", 5)}
    clock.advance(10)
    assert [42, 42] == fences(queue.claim_batch("w", 5))
    raise_floor(stored, 42)
    clock.advance(10)
    assert [43, 43] == fences(queue.claim_batch("w", 5))


@pytest.mark.parametrize(
    ("floor", "fence", "expected"), [(5, 7, 8), (7, 7, 8), (8, 7, 9), (0, 0, 1), (FAR, 3, FAR + 1)]
)
def test_the_higher_of_both(queue, stored, floor, fence, expected):
    """The floor counts only where it is higher than the task's own fence."""
    set_fence(stored, sent(queue), fence)
    raise_floor(stored, floor)
    assert expected == queue.claim("w").fence


def test_a_task_that_came_back_never_repeats_a_fence(queue, stored):
    """A message whose rows were purged and that comes again is claimed above every fence that it ever had."""
    task_id = sent(queue)
    first = queue.claim("w")
    with stored.engine.begin() as connection:
        for name in ("outbox", "journal", "tasks", "inbox"):
            connection.execute(sa.delete(getattr(tables(), name)))
    raise_floor(stored, first.fence)
    assert task_id == sent(queue)
    second = queue.claim("w")
    assert (task_id, 2) == (second.task_id, second.fence)
    for lost in (lambda: queue.finish(first, 1), lambda: queue.finish_and_claim(first, 1), lambda: queue.renew(first)):
        with pytest.raises(Fenced):
            lost()
    queue.finish(second, 1)


def test_the_floor_counts_for_replies_and_for_finish_and_claim(queue, stored):
    """A reply's first claim is above the floor too, and so is the task that finish_and_claim takes."""
    sent(queue, "a")
    sent(queue, "b")
    held = queue.claim("w")
    raise_floor(stored, FAR)
    assert FAR + 1 == queue.finish_and_claim(held, 1).fence
    assert [FAR + 1] == fences(queue.claim_reply_batch("d", 5))


def test_a_claim_that_is_held_is_not_touched_by_the_floor(queue, stored):
    """A floor that rises while a task is held leaves its claim valid, unless the row's own fence rises too."""
    sent(queue, "a")
    kept = queue.claim("w")
    raise_floor(stored, FAR)
    assert kept.fence == queue.renew(kept).fence
    set_fence(stored, kept.task_id, FAR)
    with pytest.raises(Fenced):
        queue.renew(kept)


def test_fences_reach_the_journal(queue, clock, stored):
    """The journal tells each claim's own fence, also where the floor made it jump."""
    sent(queue)
    queue.claim("w")
    raise_floor(stored, 40)
    clock.advance(10)
    queue.finish(queue.claim("w"), 1)
    steps = [(row["to_state"], row["fence"]) for row in stored.rows("journal") if row["subject"] == "task"]
    assert [("pending", 0), ("running", 1), ("pending", 1), ("running", 41), ("done", 41)] == steps


@pytest.mark.parametrize("change", [{"fence": 1}, {"fence": 3}, {"owner": "v"}, {"fence": True}], ids=str)
def test_any_other_fence_or_owner_is_refused(queue, clock, stored, change):
    """A held task is changed by its own claim only; every verb refuses another fence or owner, and changes nothing."""
    sent(queue)
    queue.claim("w")
    clock.advance(10)
    other = dataclasses.replace(queue.claim("w"), **change)
    sent(queue, "next")
    before = stored.contents()
    for lost in (
        lambda: queue.renew(other),
        lambda: queue.finish(other, 1),
        lambda: queue.fail(other, "no"),
        lambda: queue.release(other),
        lambda: queue.finish_and_claim(other, 1),
    ):
        with pytest.raises(Fenced):
            lost()
    assert [False] == [one.ok for one in queue.finish_batch([(other, 1)])]
    assert before == stored.contents()


def test_a_row_that_may_not_make_a_move_is_not_written(queue, stored):
    """The last guard: whatever a verb believed, a row that was seen in a state without that move stays as it is."""
    ended = sent(queue)
    queue.cancel(ended)
    before = stored.contents()
    with stored.engine.begin() as connection:
        leased = leases.leased_tasks(tables())
        row = leases.lock(connection, leased, ended)
        with pytest.raises(Fenced):
            leases.write(connection, leased, [row], states.PENDING, leases.freed(0.0))
    assert before == stored.contents()
