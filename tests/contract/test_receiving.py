from __future__ import annotations

import pytest

from recovery import BatchFailed, InvalidEnvelope, PayloadCollision
from tests.plugins.queues import AUTH, envelope


def test_ack_and_rows(queue, stored):
    """Receiving stores one inbox row and one pending task, and answers `stored`."""
    ack = queue.receive(envelope(), AUTH)
    assert ("stored", False) == (ack.ack, ack.duplicate)
    assert [ack.task_id] == [row["task_id"] for row in stored.rows("inbox")]
    assert [("pending", 1000.0)] == [(row["state"], row["received_at"]) for row in stored.rows("tasks")]


@pytest.mark.parametrize(
    ("change", "state"),
    [({"deadline": 1000.0}, "expired"), ({"hops": 4}, "hop_limit"), ({"hops": 9, "deadline": 1.0}, "expired")],
    ids=["deadline", "hops", "both"],
)
def test_ended_at_intake(queue, change, state):
    """A passed deadline ends as expired, spent hops as hop_limit, each with its reply; it can never be claimed."""
    ack = queue.receive(envelope(**change), AUTH)
    assert state == queue.task(ack.task_id).state
    assert [state] == [reply.status for reply in queue.replies(ack.task_id)]
    assert queue.claim("w") is None


def test_just_before_the_limits(queue):
    """A deadline in the future and one hop less than the limit can be claimed."""
    queue.receive(envelope(deadline=1000.5, hops=3), AUTH)
    assert 1 == queue.claim("w").attempt


def test_batch_stops_with_its_prefix(queue, stored):
    """BatchFailed carries the ACKs of the committed prefix, the index and the cause."""
    with pytest.raises(BatchFailed) as caught:
        queue.receive_batch([envelope("a"), envelope("b"), envelope(""), envelope("c")], AUTH)
    assert (2, 2) == (len(caught.value.acks), caught.value.index)
    assert isinstance(caught.value.cause, InvalidEnvelope)
    assert {"a", "b"} == {row["message_id"] for row in stored.rows("inbox")}


def test_batch_counts_an_iterator_that_raises(queue):
    """An iterator that raises fails the batch at its index."""

    def source():
        yield envelope("a")
        raise OSError("gone")

    with pytest.raises(BatchFailed) as caught:
        queue.receive_batch(source(), AUTH)
    assert (1, OSError) == (caught.value.index, type(caught.value.cause))


def test_batch_replayed(queue):
    """A replay returns what was stored as duplicates."""
    queue.receive_batch([envelope("a")], AUTH)
    acks = queue.receive_batch([envelope("a"), envelope("b")], AUTH)
    assert [True, False] == [ack.duplicate for ack in acks]


@pytest.mark.parametrize(
    ("bad", "error"), [(envelope(""), InvalidEnvelope), (envelope("old", hops=1), PayloadCollision)]
)
def test_receive_all_is_all_or_nothing(queue, stored, bad, error):
    """One refusal or collision takes the whole of receive_all back."""
    queue.receive(envelope("old"), AUTH)
    before = stored.contents()
    with pytest.raises(error):
        queue.receive_all([envelope("a"), bad, envelope("b")], AUTH)
    assert before == stored.contents()


def test_receive_all_in_order(queue):
    """receive_all answers in order, knows duplicates, and its tasks arrive in the order given."""
    acks = queue.receive_all([envelope(name) for name in "zax"] + [envelope("z")], AUTH)
    assert [False, False, False, True] == [ack.duplicate for ack in acks]
    assert [ack.task_id for ack in acks[:3]] == [claim.task_id for claim in queue.claim_batch("w", 10)]
