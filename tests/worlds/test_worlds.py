"""Small worlds, all of them: every promise holds in every state that can be reached."""

from __future__ import annotations

import os

import pytest

from tests.worlds.exploring import explore
from tests.worlds.machine import key
from tests.worlds.named import CLOSED, CUT_OFF, VARIABLE, WORKERS, is_full
from tests.worlds.steps import Step, steps


@pytest.mark.parametrize("world", CLOSED, ids=lambda world: world.name)
def test_every_state_of_a_small_world_is_right(world, machine_of, tell) -> None:
    """All interleavings, crashes and lost answers, to the end; a world that lost states is no longer all of it."""
    explored = explore(machine_of(world))
    tell(str(explored))
    assert (CLOSED[world], True) == (explored.states, explored.closed)


@pytest.mark.parametrize("world", CUT_OFF, ids=lambda world: world.name)
def test_the_nearest_states_of_a_large_world_are_right(world, machine_of, tell) -> None:
    """The same of a larger world: the nearest states, or all of them where the environment asks for it."""
    short, full = CUT_OFF[world]
    whole = is_full(os.environ)
    explored = explore(machine_of(world), None if whole else short)
    tell(str(explored))
    assert explored.closed is whole
    assert explored.states == full if whole else explored.states >= short


def test_the_environment_chooses_the_form() -> None:
    """The short form, unless the full one is asked for; nothing else is understood."""
    assert (False, False, True) == (is_full({}), is_full({VARIABLE: "short"}), is_full({VARIABLE: "full"}))
    with pytest.raises(pytest.UsageError, match=VARIABLE):
        is_full({VARIABLE: "all"})


def test_a_restored_database_keeps_its_connection_as_it_was_set_up(machine_of) -> None:
    """The bytes of a state bring no settings: foreign keys are still checked, and commits are still in full."""
    machine = machine_of(WORKERS)
    state = machine.start()
    received = machine.take(state, next(steps(WORKERS, ())))
    machine.take(state, received.step)
    driver = machine._queue.driver
    pragmas = [driver.execute(f"PRAGMA {name}").fetchone()[0] for name in ("foreign_keys", "synchronous")]
    assert [1, 2] == pragmas


def test_a_step_is_taken_from_the_same_state_as_before(machine_of) -> None:
    """Whatever was done since, a state that is put back gives the same answer and leads to the same state."""
    machine = machine_of(WORKERS)
    received = machine.take(machine.start(), next(steps(WORKERS, ()))).after
    claim = Step("a", "claim")
    first = machine.take(received, claim)
    machine.take(first.after, Step("canceller", "cancel", message=WORKERS.envelopes()[0]))
    again = machine.take(received, claim)
    assert (first.answer, first.after.contents) == (again.answer, again.after.contents)
    assert key(WORKERS, first.after) == key(WORKERS, again.after)
