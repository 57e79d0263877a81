"""What a connection remembers of its earlier claims changes no answer: one that has none yet finds the same."""

from __future__ import annotations

import pytest

from tests.plugins.queues import AUTH, SOURCES, envelope


@pytest.fixture
def fresh(door, database_url, clock):
    """Makes queues whose connections have not claimed anything."""
    return lambda: door.queue(database_url, allowed_sources=SOURCES, backoff=2.0, clock=clock)


@pytest.fixture
def due(queue, clock):
    """A claim that holds, made beside one whose lease is over and one whose deadline is."""
    lost = queue.receive(envelope("lost"), AUTH).task_id
    queue.claim("w")
    late = queue.receive(envelope("late", deadline=1009.0), AUTH).task_id
    clock.advance(5)
    mine = queue.receive(envelope("mine", priority=9), AUTH).task_id
    claim = queue.claim("w")
    assert mine == claim.task_id
    clock.advance(5)
    return lost, late, claim


def test_finish_and_claim_settles_first(fresh, due):
    """What is due is settled before the next one is taken, and may be that next one."""
    lost, late, claim = due
    queue = fresh()
    taken = queue.finish_and_claim(claim, 1)
    assert (lost, 2) == (taken.task_id, taken.fence)
    assert ["done", "expired"] == [queue.task(task_id).state for task_id in (claim.task_id, late)]


def test_finish_and_claim_asked_again_settles_first(fresh, due):
    """The same where the task was finished before."""
    lost, late, claim = due
    fresh().finish(claim, 1)
    queue = fresh()
    taken = queue.finish_and_claim(claim, 1)
    assert (lost, 2) == (taken.task_id, taken.fence)
    assert "expired" == queue.task(late).state


def test_claim_settles_first(fresh, due):
    """The same for a claim alone and for many."""
    lost, late, _ = due
    queue = fresh()
    assert [(lost, 2)] == [(claim.task_id, claim.fence) for claim in queue.claim_batch("v", 5)]
    assert "expired" == queue.task(late).state


def test_claim_reply_settles_first(queue, fresh, clock):
    """The same for a delivery whose lease is over."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    held = queue.claim_reply("d")
    clock.advance(10)
    again = fresh().claim_reply("e")
    assert (held.reply_id, 2, "e") == (again.reply_id, again.fence, again.owner)
