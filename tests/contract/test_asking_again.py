"""Asking again after the end: only the claim that ended the task, with the result that it stored, is told `done`."""

from __future__ import annotations

import dataclasses

import pytest

from recovery import Fenced
from tests.plugins.queues import AUTH, envelope

ENDS = {
    "finish": lambda queue, claim, result=1: queue.finish(claim, result),
    "finish_batch": lambda queue, claim, result=1: raised(queue.finish_batch([(claim, result)])),
    "finish_and_claim": lambda queue, claim, result=1: queue.finish_and_claim(claim, result),
}
OTHERS = {
    "owner": {"owner": "v"},
    "a fence to come": {"fence": 3},
    "true": {"fence": True},
    "no whole number": {"fence": 2.0},
}
ends = pytest.mark.parametrize("call", ENDS.values(), ids=ENDS.keys())


def raised(verdicts):
    """Raise what stands against the one item of a batch; return its state."""
    (only,) = verdicts
    if only.error is not None:
        raise only.error
    return only.state


@pytest.fixture
def claims(queue, clock):
    """Two claims of one worker on the same task, of which the second one ended it with 1."""
    queue.receive(envelope(), AUTH)
    first = queue.claim("w")
    clock.advance(10)
    second = queue.claim("w")
    queue.finish(second, 1)
    return first, second


@ends
def test_the_claim_that_ended_it(queue, clock, stored, claims, call):
    """It is told so, also long after, and nothing is written."""
    before = stored.contents()
    clock.advance(5000)
    assert call(queue, claims[1]) in (None, "done")
    assert before == stored.contents()


@ends
def test_an_older_claim_of_the_same_worker(queue, stored, claims, call):
    """It ended nothing, though its worker and its result are the same."""
    before = stored.contents()
    with pytest.raises(Fenced) as caught:
        call(queue, claims[0])
    assert (1, "it is done") == (caught.value.fence, caught.value.why)
    assert before == stored.contents()


@ends
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_a_claim_that_is_almost_the_same(queue, stored, claims, call, change):
    """Another owner or fence is another claim, whatever equals what in Python."""
    before = stored.contents()
    with pytest.raises(Fenced, match="it is done"):
        call(queue, dataclasses.replace(claims[1], **change))
    assert before == stored.contents()


def test_a_true_fence_beside_fence_one(queue, stored):
    """True equals 1 and is the fence of no claim, also after the end."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    queue.finish(claim, 1)
    before = stored.contents()
    for call in ENDS.values():
        with pytest.raises(Fenced, match="it is done"):
            call(queue, dataclasses.replace(claim, fence=True))
    assert before == stored.contents()


@ends
def test_another_result(queue, stored, claims, call):
    """The stored result stays: what else the same claim brings is Fenced."""
    before = stored.contents()
    with pytest.raises(Fenced, match="it is done"):
        call(queue, claims[1], 2)
    assert before == stored.contents()
