from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import Fenced, InvalidEnvelope, Misconfigured, PayloadCollision, Receipt, Unavailable
from tests.plugins.queues import AUTH, envelope
from tests.plugins.receivers import LostAck


class Answering:
    """A receiver that answers what it is told, or raises it, and remembers what it got."""

    def __init__(self, answer):
        self.answer, self.got = answer, []

    def accept(self, reply_id, payload):
        self.got.append((reply_id, payload))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def reply(queue):
    """One reply that waits to be sent."""
    queue.receive(envelope(), AUTH)
    queue.finish(queue.claim("w"), {"x": 1})
    (found,) = queue.replies()
    return found


def only(queue):
    """The one reply as it is stored now."""
    (found,) = queue.replies()
    return found


def test_nothing_to_send(queue, receiver):
    """With no reply that is due there is nothing to dispatch."""
    assert queue.dispatch_once(receiver) is None


def test_sent(queue, receiver, reply):
    """A confirmed reply is sent, the receiver has seen it, and the task is as it was."""
    before = queue.task(reply.task_id)
    done = queue.dispatch_once(receiver)
    assert (reply.reply_id, "sent", False) == (done.reply_id, done.state, done.duplicate)
    assert receiver.seen(reply.reply_id)
    assert before == queue.task(reply.task_id)
    assert queue.dispatch_once(receiver) is None


def test_lost_ack_has_one_effect(queue, receiver, reply, clock):
    """A lost ACK is sent again after the backoff; the receiver deduplicates, and the effect is there once."""
    lossy = LostAck(receiver)
    assert "pending" == queue.dispatch_once(lossy).state
    assert queue.dispatch_once(lossy) is None
    clock.advance(2)
    done = queue.dispatch_once(lossy)
    assert ("sent", True, 1) == (done.state, done.duplicate, receiver.effect_count())


@pytest.mark.parametrize("error", [TimeoutError("slow"), ValueError("odd"), Unavailable("away"), KeyError("x")])
def test_temporary_errors_spend_the_budget(queue, reply, clock, error):
    """Any other error is temporary, sends the same bytes under the same id, and is dead when the budget is spent."""
    failing = Answering(error)
    states = []
    for _ in range(3):
        states.append(queue.dispatch_once(failing).state)
        clock.advance(2)
    assert ["pending", "pending", "dead"] == states
    assert {(reply.reply_id, reply.payload)} == set(failing.got)
    assert queue.dispatch_once(failing) is None


@pytest.mark.parametrize("error", [PayloadCollision("reply"), InvalidEnvelope("refused")])
def test_permanent_errors_are_dead_at_once(queue, reply, error):
    """A collision or a refusal is dead at the first attempt."""
    assert "dead" == queue.dispatch_once(Answering(error)).state
    assert 1 == only(queue).attempts


def test_a_collision_says_different_content(queue, receiver, reply):
    """A collision at the receiver is dead, and its stored text contains `different content`."""
    receiver.accept(reply.reply_id, "another")
    assert "dead" == queue.dispatch_once(receiver).state
    assert "different content" in only(queue).last_error


@pytest.mark.parametrize(
    "answer",
    [None, True, {"ack": "stored"}, Receipt("stored", "other", duplicate=False), Receipt("ok", "R", duplicate=False)],
    ids=["none", "true", "dict", "another id", "another word"],
)
def test_a_wrong_confirmation_confirms_nothing(queue, reply, answer):
    """An answer that is not the expected confirmation is temporary."""
    if isinstance(answer, Receipt) and answer.reply_id == "R":
        answer = Receipt(answer.ack, reply.reply_id, duplicate=False)
    assert "pending" == queue.dispatch_once(Answering(answer)).state
    assert "confirmation" in only(queue).last_error


def test_a_database_error_keeps_its_text_to_itself(queue, reply):
    """The text of a database's error can carry a row's data, and is not stored."""
    error = sa.exc.IntegrityError("INSERT secret", {}, Exception("secret row"))
    queue.dispatch_once(Answering(error))
    assert "secret" not in only(queue).last_error
    assert "IntegrityError" in only(queue).last_error


@pytest.mark.parametrize(("settings", "state"), [({}, "pending"), ({"delivery_attempts": 1}, "dead")])
def test_lease_that_ended(door, database_url, clock, settings, state):
    """A delivery whose lease ended goes back, or is dead with a spent budget, and says that the outcome is unknown."""
    queue = door.queue(database_url, allowed_sources={"agent-a"}, clock=clock, **settings)
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    queue.claim_reply("d")
    clock.advance(10)
    assert 1 == queue.reconcile().replies
    assert (state, "delivery lease expired; outcome unknown") == (only(queue).state, only(queue).last_error)


@pytest.mark.parametrize("taken", [False, True], ids=["nobody", "another"])
def test_a_stale_dispatcher_is_fenced(queue, reply, clock, stored, taken):
    """A dispatcher whose lease is over is Fenced, whether somebody took the reply or nobody; nothing changes."""
    held = queue.claim_reply("d")
    clock.advance(10)
    if taken:
        assert 2 == queue.claim_reply("e").fence
    before = stored.contents()
    with pytest.raises(Fenced):
        queue.settle(held, delivered=True)
    with pytest.raises(Fenced):
        queue.renew_reply(held)
    assert before == stored.contents()


def test_a_vanished_row_is_fenced(queue, reply, stored):
    """A dispatcher whose row has vanished is Fenced."""
    held = queue.claim_reply("d")
    with stored.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM outbox"))
    with pytest.raises(Fenced):
        queue.settle(held, delivered=True)


def test_renewed_delivery(queue, reply, clock):
    """A renewed delivery holds beyond its first lease."""
    held = queue.claim_reply("d")
    clock.advance(9)
    renewed = queue.renew_reply(held)
    clock.advance(9)
    assert "sent" == queue.settle(renewed, delivered=True)


def test_error_while_the_outcome_is_stored(queue, reply, clock):
    """When the lease runs out while sending, the outcome is not stored: Fenced is raised, the row stays sending."""

    class Slow:
        def accept(self, reply_id, payload):
            clock.advance(10)
            return Receipt("stored", reply_id, duplicate=False)

    with pytest.raises(Fenced):
        queue.dispatch_once(Slow())
    assert "sending" == only(queue).state


def test_a_receiver_without_accept(queue, reply):
    """An object without `accept` is refused before anything is claimed."""
    with pytest.raises(Misconfigured):
        queue.dispatch_once(object())
    assert ("pending", 0) == (only(queue).state, only(queue).attempts)
