"""Fenced says of which row and which fence it speaks, and the first thing that did not hold, whatever the verb."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from recovery import Fenced, states
from recovery.repositories import leases
from recovery.repositories.leases import FENCE_MAX
from recovery.schema import tables
from tests.plugins.queues import AUTH, envelope

UNKNOWN = "0" * 64
CLAIM_VERBS = {
    "renew": lambda queue, claim: queue.renew(claim),
    "finish": lambda queue, claim: queue.finish(claim, 1),
    "finish_batch": lambda queue, claim: raised(queue.finish_batch([(claim, 1)])),
    "finish_and_claim": lambda queue, claim: queue.finish_and_claim(claim, 1),
    "fail": lambda queue, claim: queue.fail(claim, "no"),
    "release": lambda queue, claim: queue.release(claim),
}
DELIVERY_VERBS = {
    "renew_reply": lambda queue, held: queue.renew_reply(held),
    "settle": lambda queue, held: queue.settle(held, delivered=True),
}
OTHERS = {
    "another fence": ({"fence": 2}, "it was claimed again since"),
    "no whole number": ({"fence": 1.0}, "it was claimed again since"),
    "a bool": ({"fence": True}, "it was claimed again since"),
    "below all": ({"fence": -1}, "it was claimed again since"),
    "above all": ({"fence": FENCE_MAX + 1}, "it was claimed again since"),
    "another owner": ({"owner": "v"}, "somebody else holds it"),
    "both": ({"fence": 2, "owner": "v"}, "it was claimed again since"),
}
claim_verbs = pytest.mark.parametrize("call", CLAIM_VERBS.values(), ids=CLAIM_VERBS.keys())
delivery_verbs = pytest.mark.parametrize("call", DELIVERY_VERBS.values(), ids=DELIVERY_VERBS.keys())
others = pytest.mark.parametrize(("change", "why"), OTHERS.values(), ids=OTHERS.keys())


def raised(verdicts):
    """Raise what the one verdict of a batch says."""
    (only,) = verdicts
    raise only.error


def fenced(call, queue, held):
    """What a verb says of a claim that is lost: the row, the fence and the reason."""
    with pytest.raises(Fenced) as caught:
        call(queue, held)
    error = caught.value
    assert str(error.identity) in str(error)
    assert f"fence {error.fence} " in str(error)
    assert error.why in str(error)
    return error.identity, error.fence, error.why


@pytest.fixture
def claim(queue):
    """A claim on a task whose deadline and lease end in this order."""
    queue.receive(envelope(deadline=1008.0), AUTH)
    return queue.claim("w")


@pytest.fixture
def held(queue):
    """A delivery."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    return queue.claim_reply("d")


@claim_verbs
@others
def test_a_claim_that_is_another(queue, stored, claim, call, change, why):
    """A fence that is not the row's is told before an owner that is not, whatever kind of number it is."""
    wrong = dataclasses.replace(claim, **change)
    before = stored.contents()
    assert (claim.task_id, wrong.fence, why) == fenced(call, queue, wrong)
    assert before == stored.contents()


@delivery_verbs
@others
def test_a_delivery_that_is_another(queue, stored, held, call, change, why):
    """The same of a delivery."""
    wrong = dataclasses.replace(held, **change)
    before = stored.contents()
    assert (held.reply_id, wrong.fence, why) == fenced(call, queue, wrong)
    assert before == stored.contents()


@claim_verbs
@pytest.mark.parametrize(
    ("task_id", "named"),
    [(UNKNOWN, UNKNOWN), ("a\0b", "an unknown row"), (7, "an unknown row"), (["x"], "an unknown row")],
    ids=repr,
)
def test_a_claim_on_no_row(queue, claim, call, task_id, named):
    """An id that no row can have is not repeated: it may be anything."""
    assert (named, 1, "there is no such row") == fenced(call, queue, dataclasses.replace(claim, task_id=task_id))


@delivery_verbs
@pytest.mark.parametrize(("reply_id", "named"), [(UNKNOWN, UNKNOWN), ("", "an unknown row"), (None, "an unknown row")])
def test_a_delivery_of_no_row(queue, held, call, reply_id, named):
    """The same of a delivery."""
    assert (named, 1, "there is no such row") == fenced(call, queue, dataclasses.replace(held, reply_id=reply_id))


@claim_verbs
def test_a_claim_whose_time_is_over(queue, clock, stored, claim, call):
    """The deadline ends a claim at its very moment, and the lease is named first where both are over."""
    clock.advance(8)
    assert (claim.task_id, 1, "its deadline is over") == fenced(call, queue, claim)
    clock.advance(2)
    assert (claim.task_id, 1, "its lease is over") == fenced(call, queue, claim)
    assert ["running"] == [row["state"] for row in stored.rows("tasks")]


@delivery_verbs
def test_a_delivery_whose_time_is_over(queue, clock, stored, held, call):
    """A delivery ends with its lease alone, at its very moment."""
    clock.advance(9.999)
    again = queue.renew_reply(held)
    clock.advance(10)
    assert (held.reply_id, 1, "its lease is over") == fenced(call, queue, again)
    assert ["sending"] == [row["state"] for row in stored.rows("outbox")]


@claim_verbs
@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda queue, claim: queue.cancel(claim.task_id), "cancelled"),
        (lambda queue, claim: queue.fail(claim, "no", retryable=False), "failed"),
        (lambda queue, claim: queue.release(claim), "pending"),
        (lambda queue, claim: queue.finish(claim, 2), "done"),
    ],
    ids=["cancelled", "failed", "pending", "done"],
)
def test_a_claim_on_what_is_not_running(queue, claim, call, end, state):
    """The state is told before anything else of the row."""
    end(queue, claim)
    assert (claim.task_id, 1, f"it is {state}") == fenced(call, queue, claim)


@delivery_verbs
@pytest.mark.parametrize("state", ["sent", "dead", "pending"])
def test_a_delivery_of_what_is_not_being_sent(queue, held, call, state):
    """The same of a delivery."""
    queue.settle(held, delivered=state == "sent", permanent=state == "dead")
    assert (held.reply_id, 1, f"it is {state}") == fenced(call, queue, held)


def test_a_claim_in_a_batch_beside_a_lost_one(queue, clock, stored):
    """Each verdict speaks of its own claim, in the order in which they were given."""
    for name in ("a", "b", "c"):
        queue.receive(envelope(name), AUTH)
    claims = queue.claim_batch("w", 3)
    wrong = [dataclasses.replace(claims[0], fence=9), claims[1], dataclasses.replace(claims[2], owner="v")]
    first, second, third = queue.finish_batch([(claim, 1) for claim in wrong])
    assert (claims[0].task_id, None, 9) == (first.identity, first.state, first.error.fence)
    assert (claims[1].task_id, "done", None) == (second.identity, second.state, second.error)
    assert (claims[2].task_id, None, "somebody else holds it") == (third.identity, third.state, third.error.why)
    with stored.engine.connect() as connection:
        tasks = tables().tasks
        now = dict(connection.execute(sa.select(tasks.c.task_id, tasks.c.state)).all())
    assert ["running", "done", "running"] == [now[claim.task_id] for claim in claims]


def test_a_move_that_no_state_allows(queue, stored, claim):
    """The guard under all verbs speaks of its row too, whoever calls it."""
    queue.cancel(claim.task_id)
    before = stored.contents()
    leased = leases.leased_tasks(tables())
    with stored.engine.begin() as connection:
        row = leases.lock(connection, leased, claim.task_id)
        with pytest.raises(Fenced) as caught:
            leases.write(connection, leased, [row], states.RUNNING, {"lease_until": 9e9})
    assert (claim.task_id, 1, "the row changed under its lock") == (
        caught.value.identity,
        caught.value.fence,
        caught.value.why,
    )
    assert before == stored.contents()


BEYOND = 2**53
"""From here on a double does not hold every whole number."""


@pytest.fixture
def claim_beyond(queue, stored):
    """A claim whose fence no double tells from the one before, and one with that."""
    queue.receive(envelope(), AUTH)
    raise_fence(stored, tables().tasks)
    return beside(queue.claim("w"))


@pytest.fixture
def delivery_beyond(queue, stored):
    """The same of a delivery."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    raise_fence(stored, tables().outbox)
    return beside(queue.claim_reply("d"))


def raise_fence(stored, table):
    """Let the next fence of the only row be one that no double holds."""
    with stored.engine.begin() as connection:
        connection.execute(sa.update(table).values(fence=BEYOND))


def beside(held):
    """What is held, and the same under the fence before."""
    assert BEYOND + 1 == held.fence
    return held, dataclasses.replace(held, fence=BEYOND)


@claim_verbs
def test_fences_that_no_double_holds(queue, claim_beyond, call):
    """A fence is a whole number of 63 bits everywhere: beside it the next one is another, however large both are."""
    claim, lost = claim_beyond
    assert (claim.task_id, BEYOND, "it was claimed again since") == fenced(call, queue, lost)
    queue.finish(claim, 1)
    assert "done" == queue.task(claim.task_id).state


@pytest.mark.parametrize("call", [*CLAIM_VERBS.values()][3:], ids=[*CLAIM_VERBS][3:])
def test_the_fence_that_counts(queue, claim_beyond, call):
    """The verb that refused the other takes the one that holds."""
    claim, lost = claim_beyond
    assert (claim.task_id, BEYOND, "it was claimed again since") == fenced(call, queue, lost)
    call(queue, claim)
    assert "running" != queue.task(claim.task_id).state


@delivery_verbs
def test_a_deliverys_fence_that_no_double_holds(queue, delivery_beyond, call):
    """The same of a delivery."""
    held, lost = delivery_beyond
    assert (held.reply_id, BEYOND, "it was claimed again since") == fenced(call, queue, lost)
    assert "sent" == queue.settle(held, delivered=True)


class Alike(str):
    """Equal to the text that it was made from."""

    __slots__ = ()


def test_an_owner_that_is_only_alike_is_fenced(queue):
    """Types are exact: such a claim was never handed out, and hinders no other in its batch."""
    for name in ("a", "b"):
        queue.receive(envelope(name), AUTH)
    first, second = queue.claim_batch("w", 2)
    alike = dataclasses.replace(first, owner=Alike(first.owner))
    with pytest.raises(Fenced):
        queue.renew(alike)
    refused, done = queue.finish_batch([(alike, 1), (second, 1)])
    assert (type(refused.error), done.error) == (Fenced, None)
    queue.finish(first, 1)
