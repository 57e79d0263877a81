"""What a verb hands over is whole: a longer lease, an effect's arguments, a verdict's name; also beside what fails."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from recovery import Fenced, Settlement
from tests.contract.swallowing import swallow
from tests.plugins.queues import AUTH, envelope


def test_a_claim_with_a_longer_lease(queue, clock):
    """Nothing else of it is different."""
    queue.receive(envelope(payload={"n": [1, "a", None]}, max_attempts=2), AUTH)
    queue.release(queue.claim("v"))
    claim = queue.claim("w")
    clock.advance(4)
    longer = queue.renew(claim)
    assert dataclasses.replace(claim, lease_until=1014.0) == longer
    assert ("w", 2, 2, {"n": [1, "a", None]}, 2000.0) == (
        longer.owner,
        longer.fence,
        longer.attempt,
        longer.payload,
        longer.deadline,
    )
    assert [float, float] == [type(longer.lease_until), type(longer.deadline)]


def test_a_delivery_with_a_longer_lease(queue, clock):
    """The same of a delivery."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    queue.settle(queue.claim_reply("c"), delivered=False)
    clock.advance(2)
    held = queue.claim_reply("d")
    clock.advance(4)
    longer = queue.renew_reply(held)
    assert dataclasses.replace(held, lease_until=1016.0) == longer
    assert ("d", 2, 2, queue.replies()[0].payload) == (longer.owner, longer.fence, longer.attempt, longer.payload)


def test_what_an_effect_is_given(receiver):
    """A connection in the receipt's transaction, the id of the reply, and its very text; and only once."""
    given = []

    def apply(connection, reply_id, payload):
        receipts = connection.execute(sa.text("SELECT count(*) FROM receipts")).scalar_one()
        given.append((receipts, reply_id, payload))

    first = receiver.accept("reply:1", '{"n":1}', apply)
    again = receiver.accept("reply:1", '{"n":1}', apply)
    assert [(1, "reply:1", '{"n":1}')] == given
    assert [("reply:1", False), ("reply:1", True)] == [(one.reply_id, one.duplicate) for one in (first, again)]


def test_a_verdict_names_its_delivery(queue):
    """Also where it is refused, for what was taken by another, what was made up, and what is sent."""
    for name in ("a", "b", "c"):
        queue.cancel(queue.receive(envelope(name), AUTH).task_id)
    good, lost, wrong = queue.claim_reply_batch("d", 3)
    given = [good, dataclasses.replace(lost, fence=9), dataclasses.replace(wrong, owner=7), good]
    verdicts = queue.settle_batch([Settlement(one, delivered=True) for one in given])
    assert [one.reply_id for one in given] == [verdict.identity for verdict in verdicts]
    assert ["sent", None, None, None] == [verdict.state for verdict in verdicts]
    assert [None, "it was claimed again since", "somebody else holds it", "it is sent"] == [
        verdict.error.why if verdict.error else None for verdict in verdicts
    ]
    assert {Fenced} == {type(verdict.error) for verdict in verdicts[1:]}


@pytest.fixture
def stuck(queue, clock, stored):
    """A task whose lease is over and that the database lets nobody give back; beside it a claim and a free task."""
    task_id = queue.receive(envelope("stuck"), AUTH).task_id
    queue.claim("v")
    clock.advance(5)
    queue.receive(envelope("mine"), AUTH)
    claim = queue.claim("w")
    queue.receive(envelope("free"), AUTH)
    swallow(stored.engine, "UPDATE", "tasks", f"OLD.task_id = '{task_id}' AND NEW.state = 'pending'")
    clock.advance(5)
    return task_id, claim


def test_a_finish_beside_what_cannot_be_settled(queue, stuck):
    """The task is finished and the next one taken, without settling."""
    task_id, claim = stuck
    taken = queue.finish_and_claim(claim, 1)
    assert ("done", "running") == (queue.task(claim.task_id).state, queue.task(task_id).state)
    assert taken.task_id not in (task_id, claim.task_id)
    assert "w" == taken.owner


def test_a_batch_beside_what_cannot_be_settled(queue, stuck):
    """The same of a claim of many."""
    task_id, claim = stuck
    (taken,) = queue.claim_batch("w", 5)
    assert taken.task_id not in (task_id, claim.task_id)


def test_a_delivery_beside_what_cannot_be_settled(queue, clock, stored):
    """The same of a delivery."""
    queue.cancel(queue.receive(envelope("stuck"), AUTH).task_id)
    held = queue.claim_reply("d")
    swallow(stored.engine, "UPDATE", "outbox", f"OLD.reply_id = '{held.reply_id}' AND NEW.state = 'pending'")
    for name in ("a", "b"):
        queue.cancel(queue.receive(envelope(name), AUTH).task_id)
    clock.advance(10)
    taken = [queue.claim_reply("e"), *queue.claim_reply_batch("e", 5)]
    assert 2 == len({one.reply_id for one in taken} - {held.reply_id})
    assert "sending" == next(one.state for one in queue.replies() if one.reply_id == held.reply_id)
