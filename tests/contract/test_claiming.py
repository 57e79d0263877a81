from __future__ import annotations

import pytest

from recovery import Fenced
from tests.plugins.queues import AUTH, envelope

STALE = {
    "renew": lambda queue, claim: queue.renew(claim),
    "finish": lambda queue, claim: queue.finish(claim, 1),
    "fail": lambda queue, claim: queue.fail(claim, "no"),
    "release": lambda queue, claim: queue.release(claim),
}
verbs = pytest.mark.parametrize("call", STALE.values(), ids=STALE.keys())


def test_nothing_to_claim(queue):
    """An empty queue gives None and an empty list."""
    assert queue.claim("w") is None
    assert [] == queue.claim_batch("w", 5)


def test_claim_sets_everything(queue):
    """A claim has its owner, the lease from now, and counts fence and attempt up."""
    ack = queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    assert (ack.task_id, "w", 1, 1, 1010.0, 2000.0) == (
        claim.task_id,
        claim.owner,
        claim.fence,
        claim.attempt,
        claim.lease_until,
        claim.deadline,
    )
    assert queue.claim("v") is None


def test_claim_order_and_limit(queue):
    """Claims come in order of arrival, up to the limit and never more."""
    ids = [queue.receive(envelope(f"m-{n}"), AUTH).task_id for n in range(5)]
    assert ids[:3] == [claim.task_id for claim in queue.claim_batch("w", 3)]
    assert ids[3:] == [claim.task_id for claim in queue.claim_batch("w", 3)]


def test_available_at_comes_before_arrival(queue, clock):
    """A task that becomes due later comes later, though it arrived first; at the very moment it is due."""
    first = queue.receive(envelope("a"), AUTH).task_id
    queue.fail(queue.claim("w"), "again")
    second = queue.receive(envelope("b"), AUTH).task_id
    clock.advance(2)
    assert [second, first] == [claim.task_id for claim in queue.claim_batch("w", 5)]


@verbs
def test_claim_is_lost_at_lease_until(queue, clock, stored, call):
    """At the very moment of lease_until the claim is Fenced, even if nobody has taken the task; nothing changes."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    clock.advance(10)
    before = stored.contents()
    with pytest.raises(Fenced):
        call(queue, claim)
    assert before == stored.contents()


@verbs
def test_claim_holds_just_before_lease_until(queue, clock, call):
    """Just before lease_until the claim still holds."""
    ack = queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    clock.advance(9.999)
    call(queue, claim)
    task = queue.task(ack.task_id)
    assert (claim.lease_until, "running") != (task.lease_until, task.state)


@verbs
def test_claim_is_lost_at_the_deadline(queue, clock, stored, call):
    """At the very moment of the deadline the claim is Fenced, though its lease goes on."""
    queue.receive(envelope(deadline=1005.0), AUTH)
    claim = queue.claim("w")
    clock.advance(5)
    before = stored.contents()
    with pytest.raises(Fenced):
        call(queue, claim)
    assert before == stored.contents()


@verbs
def test_claim_is_lost_to_another(queue, clock, stored, call):
    """A claim whose task was taken again is Fenced, and the new one, with a higher fence, is untouched."""
    queue.receive(envelope(), AUTH)
    old = queue.claim("w")
    clock.advance(10)
    new = queue.claim("w")
    assert (2, 2) == (new.fence, new.attempt)
    before = stored.contents()
    with pytest.raises(Fenced):
        call(queue, old)
    assert before == stored.contents()
    queue.finish(new, "mine")


def test_renew_prolongs_from_now(queue, clock):
    """Renew returns the claim with a lease that starts now, and the old bound no longer counts."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    clock.advance(9)
    renewed = queue.renew(claim)
    assert 1019.0 == renewed.lease_until
    clock.advance(9)
    queue.finish(renewed, 1)


def test_claim_settles_at_most_a_hundred(queue, clock):
    """A claim settles at most 100 rows that are due; the next one goes on."""
    queue.receive_all([envelope(f"m-{n}", deadline=1001.0) for n in range(120)], AUTH)
    clock.advance(1)
    assert queue.claim("w") is None
    assert 100 == queue.counts().ended["expired"]
    assert queue.claim("w") is None
    assert 120 == queue.counts().ended["expired"]


def test_reconcile_settles_everything(queue, clock):
    """Reconcile ends every passed deadline and takes every lost lease back."""
    queue.receive_all([envelope(f"m-{n}", deadline=1005.0) for n in range(120)], AUTH)
    queue.receive(envelope("leased"), AUTH)
    queue.claim_batch("w", 200)
    clock.advance(10)
    done = queue.reconcile()
    assert (121, 0, ()) == (done.tasks, done.replies, done.unsettled)
    assert (1, 120) == (queue.counts().open["pending"], queue.counts().ended["expired"])
    assert 0 == queue.reconcile().tasks
