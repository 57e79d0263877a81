from __future__ import annotations

import json

import pytest

from recovery import PayloadCollision
from tests.plugins.queues import AUTH, AUTH_B, envelope

DEMO = "bd09939f3bdb800b2ac17a92671ec9f53bb9a79f3c6ce81f465ea21257f41836"


def test_task_id_is_the_check_value(queue):
    """The identity of agent-a's demo-1 is the check value of the contract."""
    assert queue.receive(envelope("demo-1"), AUTH).task_id == DEMO


def test_same_message_is_a_duplicate(queue, stored):
    """The same message again is a duplicate with the same task id, and writes nothing."""
    first = queue.receive(envelope(), AUTH)
    before = stored.contents()
    again = queue.receive(envelope(), AUTH)
    assert (False, True) == (first.duplicate, again.duplicate)
    assert first.task_id == again.task_id
    assert before == stored.contents()


def test_deadline_as_int_is_the_same(queue):
    """A deadline of 2000 and one of 2000.0 are the same message."""
    queue.receive(envelope(deadline=2000.0), AUTH)
    assert queue.receive(envelope(deadline=2000), AUTH).duplicate


@pytest.mark.parametrize(
    "change",
    [{"payload": {"n": 2}}, {"payload": {"n": 1.0}}, {"deadline": 2001.0}, {"max_attempts": 2}, {"hops": 1}],
    ids=["payload", "float", "deadline", "attempts", "hops"],
)
def test_other_content_is_a_collision(queue, stored, change):
    """The same identity with another fingerprint is refused, and what is stored stays as it was."""
    queue.receive(envelope(), AUTH)
    before = stored.contents()
    with pytest.raises(PayloadCollision):
        queue.receive(envelope(**change), AUTH)
    assert before == stored.contents()


def test_two_principals_share_a_message_id(queue):
    """Two principals may use the same message id, and never deduplicate each other."""
    mine = queue.receive(envelope(), AUTH)
    other = queue.receive(envelope(sender="agent-b"), AUTH_B)
    assert (False, False) == (mine.duplicate, other.duplicate)
    assert mine.task_id != other.task_id


@pytest.mark.parametrize("pair", [("a", "A"), ("a", "a "), ("\u00e9", "e\u0301")])
def test_identity_is_by_bytes(queue, pair):
    """Case, blanks and Unicode normal forms make different messages."""
    ids = {queue.receive(envelope(message_id), AUTH).task_id for message_id in pair}
    assert 2 == len(ids)


def test_duplicate_after_the_end(queue):
    """A message whose task has ended is still a duplicate, and its task stays as it is."""
    ack = queue.receive(envelope(), AUTH)
    queue.finish(queue.claim("w"), None)
    assert queue.receive(envelope(), AUTH).duplicate
    assert "done" == queue.task(ack.task_id).state


def reply_of(queue) -> str:
    """The one reply's stored text."""
    (reply,) = queue.replies()
    return str(reply.payload)


def golden(status: str, result: object) -> str:
    """The bytes that the contract names for a reply to demo-1."""
    return f'{{"kind":"result","result":{json.dumps(result)},"status":"{status}","task_id":"{DEMO}"}}'


def test_reply_bytes_of_done(queue):
    """The reply of a done task holds its result in canonical JSON."""
    queue.receive(envelope("demo-1"), AUTH)
    queue.finish(queue.claim("w"), {"b": 1, "a": "\u00e9"})
    expected = f'{{"kind":"result","result":{{"a":"\u00e9","b":1}},"status":"done","task_id":"{DEMO}"}}'
    assert expected == reply_of(queue)


def test_reply_bytes_of_done_with_none(queue):
    """A result None is null in the reply."""
    queue.receive(envelope("demo-1"), AUTH)
    queue.finish(queue.claim("w"), None)
    assert f'{{"kind":"result","result":null,"status":"done","task_id":"{DEMO}"}}' == reply_of(queue)


def test_reply_bytes_of_failed(queue):
    """The reply of a failed task holds what fail was given."""
    queue.receive(envelope("demo-1"), AUTH)
    queue.fail(queue.claim("w"), "boom", retryable=False)
    assert golden("failed", "boom") == reply_of(queue)


def test_reply_bytes_of_exhausted(queue, clock):
    """The reply of a task whose last lease ran out says that the attempts are exhausted."""
    queue.receive(envelope("demo-1", max_attempts=1), AUTH)
    queue.claim("w")
    clock.advance(10)
    assert queue.claim("w") is None
    assert golden("failed", "attempts exhausted") == reply_of(queue)


def test_reply_bytes_of_cancelled(queue):
    """The reply of a cancelled task says who cancelled it."""
    queue.cancel(queue.receive(envelope("demo-1"), AUTH).task_id)
    assert golden("cancelled", "cancelled by scheduler") == reply_of(queue)


def test_reply_bytes_of_expired(queue):
    """The reply of an expired task says that its deadline was reached."""
    queue.receive(envelope("demo-1", deadline=1000.0), AUTH)
    assert golden("expired", "deadline reached") == reply_of(queue)


def test_reply_bytes_of_hop_limit(queue):
    """The reply of a task with too many hops says that the hop budget was reached."""
    queue.receive(envelope("demo-1", hops=4), AUTH)
    assert golden("hop_limit", "hop budget reached") == reply_of(queue)
