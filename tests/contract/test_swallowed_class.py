"""One event has one error class on both backends: what the database silently left out is StatementFailed.

It was refused, only not aloud. The claim still owns its row, so that it is not Fenced: a worker that is told so throws
its work away.
"""

from __future__ import annotations

import pytest

from recovery import RecoveryError, StatementFailed
from tests.contract.swallowing import DELIVERIES, ENDS, swallow
from tests.plugins.queues import AUTH, envelope


def failed(call, *arguments):
    """The class of the error that a call raises."""
    with pytest.raises(RecoveryError) as caught:
        call(*arguments)
    return type(caught.value)


@pytest.mark.parametrize("call", ENDS.values(), ids=ENDS.keys())
def test_a_task_that_is_not_changed(queue, stored, call):
    """Whatever verb it was."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    swallow(stored.engine, "UPDATE", "tasks")
    assert StatementFailed is failed(call, queue, claim)


@pytest.mark.parametrize("call", DELIVERIES.values(), ids=DELIVERIES.keys())
def test_a_reply_that_is_not_changed(queue, stored, call):
    """The same of a delivery."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    held = queue.claim_reply("d")
    swallow(stored.engine, "UPDATE", "outbox")
    assert StatementFailed is failed(call, queue, held)


def test_what_reconcile_says_of_it(queue, clock, stored):
    """A row that could not be settled is named with the same class."""
    task_id = queue.receive(envelope(), AUTH).task_id
    queue.claim("w")
    swallow(stored.engine, "UPDATE", "tasks")
    clock.advance(10)
    found = queue.reconcile().unsettled
    assert [("task", task_id, "StatementFailed")] == [(one.subject, one.identity, one.error) for one in found]
