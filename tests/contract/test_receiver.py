from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import InvalidEnvelope, Misconfigured, PayloadCollision
from recovery.schema import tables


def mark(connection, reply_id, payload):
    """An effect of the caller's own: it moves the fence floor, the one table that the receiver does not use."""
    floor = tables().fence_floor
    connection.execute(sa.update(floor).values(floor=floor.c.floor + 1))


def floor_of(stored) -> int:
    """How often `mark` was applied."""
    return int(stored.rows("fence_floor")[0]["floor"])


def test_stored_once(receiver, stored):
    """A reply is stored with its effect; the same again is a duplicate and applies nothing."""
    first = receiver.accept("reply:1", "{}", mark)
    again = receiver.accept("reply:1", "{}", mark)
    assert (False, True) == (first.duplicate, again.duplicate)
    assert (1, 1, True) == (floor_of(stored), receiver.effect_count(), receiver.seen("reply:1"))


def test_other_content_collides(receiver, stored):
    """The same id with other content is a PayloadCollision and changes nothing."""
    receiver.accept("reply:1", "{}")
    before = stored.contents()
    with pytest.raises(PayloadCollision, match="different content"):
        receiver.accept("reply:1", "{} ", mark)
    assert before == stored.contents()


def test_effect_that_raises_takes_the_receipt_back(receiver, stored):
    """What apply raises passes through untouched, and leaves neither receipt nor business row."""
    before = stored.contents()

    def broken(connection, reply_id, payload):
        mark(connection, reply_id, payload)
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        receiver.accept("reply:1", "{}", broken)
    assert before == stored.contents()
    assert receiver.accept("reply:1", "{}", mark).duplicate is False


async def later(connection, reply_id, payload):
    """An effect that would happen later, or never."""


def hidden(connection, reply_id, payload):
    """A plain function that returns an awaitable."""
    return later(connection, reply_id, payload)


@pytest.mark.parametrize("apply", [later, hidden, "no"], ids=["async", "hidden", "text"])
def test_only_a_plain_function_is_applied(receiver, stored, apply):
    """An async apply, open or hidden, is refused and nothing is stored."""
    before = stored.contents()
    with pytest.raises(Misconfigured):
        receiver.accept("reply:1", "{}", apply)
    assert before == stored.contents()


@pytest.mark.parametrize(("reply_id", "payload"), [("", "{}"), ("a\0", "{}"), ("r", b"{}"), ("r", "\0"), ("r", None)])
def test_refused_input(receiver, stored, reply_id, payload):
    """A bad id or payload is refused and nothing is stored."""
    before = stored.contents()
    with pytest.raises(InvalidEnvelope):
        receiver.accept(reply_id, payload)
    assert before == stored.contents()


@pytest.mark.parametrize("reply_id", ["unknown", "", "a\0", None])
def test_unknown_is_not_seen(receiver, reply_id):
    """An unknown or malformed id was not seen."""
    assert receiver.seen(reply_id) is False
