from __future__ import annotations

import pytest

from tests.plugins.queues import AUTH, envelope

ENDINGS = {
    "done": lambda queue, claim: queue.finish(claim, 1),
    "failed": lambda queue, claim: queue.fail(claim, "boom", retryable=False),
    "cancelled": lambda queue, claim: queue.cancel(claim.task_id),
}


@pytest.mark.parametrize("state", ENDINGS)
def test_explain_tells_the_ending(queue, state):
    """After each kind of ending explain names it, and what happens next to the reply."""
    queue.receive(envelope(payload={"password": "hunter2"}), AUTH)
    claim = queue.claim("w")
    ENDINGS[state](queue, claim)
    story = queue.explain(claim.task_id)
    assert state in {story.task.state, story.reply.status}
    assert "it has not ended" != story.ending
    assert "the next dispatcher sends the reply" == story.next
    assert "hunter2" not in str(story)


@pytest.mark.parametrize(
    ("change", "words"), [({"deadline": 1.0}, "deadline reached"), ({"hops": 4}, "hop budget reached")]
)
def test_explain_what_ended_at_intake(queue, change, words):
    """What ended when it came in says why, and that it was never claimed."""
    story = queue.explain(queue.receive(envelope(**change), AUTH).task_id)
    assert words in story.ending
    assert "it was never claimed" == story.work


def test_explain_open_tasks(queue, clock):
    """A pending task waits for a worker; a running one is held; a lost lease is told apart."""
    task_id = queue.receive(envelope(), AUTH).task_id
    assert "the next worker claims it" == queue.explain(task_id).next
    queue.claim("w")
    assert "'w' holds it under fence 1" in queue.explain(task_id).work
    clock.advance(10)
    assert "the next claim takes it back, because its lease is over" == queue.explain(task_id).next
    clock.advance(990)
    assert "expired" in queue.explain(task_id).next


def test_explain_the_whole_way(queue, receiver):
    """After a confirmed delivery all four stages are over, and the timeline has every step."""
    task_id = queue.receive(envelope(), AUTH).task_id
    queue.finish(queue.claim("w"), 1)
    queue.dispatch_once(receiver)
    story = queue.explain(task_id)
    assert "nothing: all four stages are over" == story.next
    assert ["pending", "running", "done", "pending", "sending", "sent"] == [step.to_state for step in story.timeline]


def test_counts(queue):
    """Counts tell the four facts in numbers."""
    for name in "abc":
        queue.receive(envelope(name), AUTH)
    queue.finish(queue.claim("w"), 1)
    queue.claim("w")
    counts = queue.counts()
    assert (3, {"pending": 1, "running": 1}) == (counts.received, dict(counts.open))
    assert (1, 0, 1) == (counts.ended["done"], counts.ended["failed"], counts.delivery["pending"])
