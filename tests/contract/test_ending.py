from __future__ import annotations

import pytest

from recovery import Fenced
from tests.plugins.queues import AUTH, envelope


def claimed(queue, **changes):
    """A claim on a new task."""
    queue.receive(envelope(**changes), AUTH)
    return queue.claim("w")


def test_finish_writes_result_state_and_reply(queue, stored):
    """Finish stores the result, the end and exactly one reply."""
    claim = claimed(queue)
    queue.finish(claim, {"x": 1})
    task = queue.task(claim.task_id)
    assert ("done", '{"x":1}', None, None) == (task.state, task.result, task.reason, task.owner)
    assert [("done", "pending")] == [(row["status"], row["state"]) for row in stored.rows("outbox")]


def test_finish_again_with_the_same_result(queue, stored, clock):
    """The same claim with the same result returns quietly, also long after, and changes nothing."""
    claim = claimed(queue)
    queue.finish(claim, {"x": 1})
    before = stored.contents()
    clock.advance(5000)
    queue.finish(claim, {"x": 1})
    assert before == stored.contents()


def test_finish_again_with_another_result(queue, stored):
    """Another result after the end is Fenced, and a None is not the same as 0."""
    claim = claimed(queue)
    queue.finish(claim, None)
    before = stored.contents()
    with pytest.raises(Fenced):
        queue.finish(claim, 0)
    assert before == stored.contents()


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_an_ended_task_is_never_left(queue, stored, verb):
    """What has ended can be neither renewed, released, failed nor cancelled."""
    claim = claimed(queue)
    queue.finish(claim, 1)
    before = stored.contents()
    with pytest.raises(Fenced):
        getattr(queue, verb)(claim)
    with pytest.raises(Fenced):
        queue.fail(claim, "late")
    assert queue.cancel(claim.task_id) is False
    assert before == stored.contents()


def test_fail_retries_after_the_backoff(queue, clock):
    """A failed attempt goes back, is not claimable before the backoff is over, and its reason is kept."""
    claim = claimed(queue)
    assert "pending" == queue.fail(claim, "boom")
    assert ("boom", 1002.0) == (queue.task(claim.task_id).last_error, queue.task(claim.task_id).available_at)
    clock.advance(1.999)
    assert queue.claim("w") is None
    clock.advance(0.001)
    assert 2 == queue.claim("w").attempt


def test_fail_until_the_attempts_are_spent(queue):
    """The last attempt's failure ends the task with the reason given."""
    claim = claimed(queue, max_attempts=1)
    assert "failed" == queue.fail(claim, "boom")
    task = queue.task(claim.task_id)
    assert ("failed", "boom", "boom") == (task.state, task.reason, task.last_error)


def test_fail_not_retryable(queue):
    """A failure that is not retryable ends the task at once."""
    claim = claimed(queue)
    assert "failed" == queue.fail(claim, "never", retryable=False)
    assert 1 == queue.task(claim.task_id).attempts


@pytest.mark.parametrize(("deadline", "state"), [(1002.0, "expired"), (1002.5, "pending")])
def test_fail_whose_backoff_meets_the_deadline(queue, deadline, state):
    """A retry that would begin at the deadline or later expires at once; the last error is kept."""
    claim = claimed(queue, deadline=deadline)
    assert state == queue.fail(claim, "boom")
    assert "boom" == queue.task(claim.task_id).last_error


def test_release_hands_back_at_once(queue):
    """Released work is claimable at once, and the attempt is not given back."""
    assert "pending" == queue.release(claimed(queue))
    again = queue.claim("v")
    assert (2, 2) == (again.attempt, again.fence)


def test_release_on_the_last_attempt(queue):
    """On the last attempt a release ends the task as failed."""
    claim = claimed(queue, max_attempts=1)
    assert "failed" == queue.release(claim)
    assert "attempts exhausted" == queue.task(claim.task_id).reason
    assert queue.claim("w") is None


def test_lease_over_spends_attempts(queue, clock):
    """A lost lease goes back to pending; with the budget spent the task is failed."""
    claim = claimed(queue, max_attempts=2)
    clock.advance(10)
    assert 2 == queue.claim("w").attempt
    clock.advance(10)
    assert queue.claim("w") is None
    assert ("failed", "attempts exhausted") == (
        queue.task(claim.task_id).state,
        queue.task(claim.task_id).reason,
    )


def test_cancel_pending_and_running(queue):
    """Cancel ends a pending and a running task; the running claim is then Fenced."""
    waiting = queue.receive(envelope("a"), AUTH).task_id
    assert queue.cancel(waiting) is True
    claim = claimed(queue)
    assert queue.cancel(claim.task_id) is True
    with pytest.raises(Fenced):
        queue.finish(claim, 1)
    assert 2 == queue.counts().ended["cancelled"]
    assert queue.cancel(waiting) is False


def test_cancel_after_the_deadline(queue, clock):
    """A task whose deadline has passed becomes expired, and cancel returns False."""
    task_id = queue.receive(envelope(deadline=1005.0), AUTH).task_id
    clock.advance(5)
    assert queue.cancel(task_id) is False
    assert "expired" == queue.task(task_id).state


def test_a_claim_of_another_owner_or_fence(queue, stored):
    """A claim with another owner or fence than the row's is Fenced."""
    claim = claimed(queue)
    before = stored.contents()
    for change in ({"owner": "thief"}, {"fence": 2}, {"task_id": "unknown"}):
        values = {name: getattr(claim, name) for name in claim.__slots__}
        with pytest.raises(Fenced):
            queue.finish(type(claim)(**(values | change)), 1)
    assert before == stored.contents()


def test_journal_row_for_each_transition(queue, stored, clock):
    """Each transition of the task and of its reply leaves one row, in order."""
    queue.fail(claimed(queue), "boom")
    clock.advance(2)
    queue.finish(queue.claim("v"), 1)
    steps = [(row["subject"], row["from_state"], row["to_state"], row["fence"]) for row in stored.rows("journal")]
    assert [
        ("task", "new", "pending", 0),
        ("task", "pending", "running", 1),
        ("task", "running", "pending", 1),
        ("task", "pending", "running", 2),
        ("task", "running", "done", 2),
        ("reply", "new", "pending", 0),
    ] == steps
