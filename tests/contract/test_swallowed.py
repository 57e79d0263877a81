"""A database that silently does not do what it was told: an update that touched no row where one was due raises.

It is StatementFailed on both backends: the change was refused, only not aloud. The claim still owns its row, so that it
is not Fenced: a worker that is told so throws its work away.
"""

from __future__ import annotations

import pytest

from recovery import RecoveryError, StatementFailed
from tests.contract.swallowing import DELIVERIES, ENDS, swallow
from tests.plugins.queues import AUTH, envelope

REPLY = ("reply:1", '"x"')


@pytest.mark.parametrize("call", ENDS.values(), ids=ENDS.keys())
def test_a_task_that_is_not_changed(queue, stored, call):
    """A verb whose change of its task came to nothing raises, and stores nothing: no reply of a task that goes on."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    swallow(stored.engine, "UPDATE", "tasks")
    before = stored.contents()
    with pytest.raises(RecoveryError) as caught:
        call(queue, claim)
    assert (StatementFailed, before) == (type(caught.value), stored.contents())


@pytest.mark.parametrize("call", DELIVERIES.values(), ids=DELIVERIES.keys())
def test_a_reply_that_is_not_changed(queue, stored, call):
    """The same for a delivery: nothing says `sent` of a reply that is still to be sent."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    held = queue.claim_reply("d")
    swallow(stored.engine, "UPDATE", "outbox")
    before = stored.contents()
    with pytest.raises(RecoveryError) as caught:
        call(queue, held)
    assert (StatementFailed, before) == (type(caught.value), stored.contents())


def test_one_of_many_is_not_changed(queue, stored):
    """In a batch, one task that was not ended takes all others back with it: no verdict stands on half of a batch."""
    ids = [queue.receive(envelope(name), AUTH).task_id for name in ("a", "b", "c")]
    claims = queue.claim_batch("w", 3)
    swallow(stored.engine, "UPDATE", "tasks", f"OLD.task_id = '{ids[1]}'")
    before = stored.contents()
    with pytest.raises(RecoveryError):
        queue.finish_batch([(claim, 1) for claim in claims])
    assert before == stored.contents()


def test_what_is_due_and_not_changed(queue, clock, stored):
    """A lease that ended and cannot be given back holds up nobody's claim, and reconcile names its task."""
    stuck = queue.receive(envelope("stuck"), AUTH).task_id
    queue.claim("w")
    swallow(stored.engine, "UPDATE", "tasks", f"OLD.task_id = '{stuck}' AND NEW.state = 'pending'")
    free = queue.receive(envelope("free"), AUTH).task_id
    clock.advance(10)
    assert free == queue.claim("w").task_id
    found = queue.reconcile()
    assert [("task", stuck)] == [(one.subject, one.identity) for one in found.unsettled]
    assert "running" == queue.task(stuck).state


def test_what_reconcile_says_of_it(queue, clock, stored):
    """A row that could not be settled is named with the same class."""
    task_id = queue.receive(envelope(), AUTH).task_id
    queue.claim("w")
    swallow(stored.engine, "UPDATE", "tasks")
    clock.advance(10)
    found = queue.reconcile().unsettled
    assert [("task", task_id, "StatementFailed")] == [(one.subject, one.identity, one.error) for one in found]


def test_a_claim_that_is_not_taken(queue, stored):
    """A task that could not be held is not handed out."""
    queue.receive(envelope(), AUTH)
    swallow(stored.engine, "UPDATE", "tasks")
    before = stored.contents()
    assert queue.claim("w") is None
    assert before == stored.contents()


@pytest.mark.parametrize("receive", ["receive", "receive_all"])
def test_a_message_that_is_not_stored(queue, stored, receive):
    """There is no ACK for a message that is not in the inbox afterwards."""
    swallow(stored.engine, "INSERT", "inbox")
    before = stored.contents()
    given = envelope() if receive == "receive" else [envelope("a"), envelope("b")]
    with pytest.raises(StatementFailed, match="came and went three times"):
        getattr(queue, receive)(given, AUTH)
    assert before == stored.contents()


def test_a_receipt_that_is_not_stored(receiver, stored):
    """There is neither confirmation nor effect for a reply whose receipt is not stored afterwards."""
    swallow(stored.engine, "INSERT", "receipts")
    before, applied = stored.contents(), []
    with pytest.raises(StatementFailed, match="vanished"):
        receiver.accept(*REPLY, lambda *_: applied.append(1))
    assert ([], before) == (applied, stored.contents())
