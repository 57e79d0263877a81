"""The rules that no planted fault breaks see what they are there for."""

from __future__ import annotations

import pytest

from recovery import Envelope
from tests.simulation.judging import Case, drained, in_the_journal, no_two_leases, stored_once
from tests.simulation.stage import Event
from tests.worlds.contents import Contents, Queue, Receiver
from tests.worlds.machine import State
from tests.worlds.named import WORKERS
from tests.worlds.steps import Step

MESSAGE = WORKERS.envelopes()[0]


def _case(history, contents=None, envelopes=(MESSAGE,)) -> Case:
    return Case(history, envelopes, contents or Contents(Queue((), (), (), (), ()), Receiver((), (), ())))


def _event(verb, answer, *, at=1000.0, row="m1", fence=1) -> Event:
    return Event(at, "a", verb, row, fence, answer, "")


@pytest.fixture
def claimed(worlds_machine) -> Contents:
    """What is stored where one task is running."""
    state: State = worlds_machine.start()
    for step in (Step("sender", "receive", message=MESSAGE), Step("a", "claim")):
        state = worlds_machine.take(state, step).after
    return state.contents


def test_a_message_that_is_new_twice_is_seen() -> None:
    """Twice new is lost once in between."""
    once = _event("receive m1", answer=False)
    assert [] == list(stored_once(_case([once, _event("receive m1", answer=True)])))
    assert ["receive m1: it was new 2 times"] == list(stored_once(_case([once, once])))


def test_what_is_not_over_in_the_end_is_seen(claimed) -> None:
    """A message that nobody stored, and a task that nobody ended."""
    other = Envelope("m2", MESSAGE.sender, {}, 2000.0)
    found = list(drained(_case([], claimed, (MESSAGE, other))))
    assert ["message m2 was never stored", "task m1 is still running"] == found


def test_a_lease_that_was_given_back_may_be_followed_at_once() -> None:
    """And one that was only refused may not."""
    first, second = (_event("claim", ("m1", "a", fence, 1, 1004.0), row="", fence=0) for fence in (1, 2))
    assert [] == list(no_two_leases(_case([first, _event("release", "pending"), second])))
    assert 1 == len(list(no_two_leases(_case([first, _event("release", "Fenced"), second]))))


@pytest.mark.parametrize(
    "event",
    [_event("finish x", None), _event("cancel", answer=True), _event("release", "pending"), _event("fail", "failed")],
)
def test_an_answer_that_is_not_in_the_journal_is_seen(event, claimed) -> None:
    """What was acknowledged and is not stored is lost."""
    assert 1 == len(list(in_the_journal(_case([event], claimed))))
