"""Every state of a world that can be reached, nearest first: each is looked at once, and every step out of it taken."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tests.worlds.contents import fingerprint, task_id
from tests.worlds.invariants import violations
from tests.worlds.machine import Key, Machine, State, key
from tests.worlds.rules import broken
from tests.worlds.steps import SENDER, TICK_SECONDS, fates, steps

Found: TypeAlias = dict[Key, tuple[Key | None, str, int]]
"""Each state that was met: the one before it, the step from there to here, and how many steps that is in all."""
Move: TypeAlias = tuple[str, State, list[str]]
"""A step by its name, the state after it, and what it broke."""


class Violation(AssertionError):
    """The product broke a promise. `path` are the fewest steps that lead there, `sentences` what is wrong then."""

    def __init__(self, path: list[str], sentences: list[str]) -> None:
        self.path, self.sentences = path, sentences
        numbered = [f"  {number}. {step}" for number, step in enumerate(path, 1)]
        super().__init__("\n".join([f"after {len(path)} steps:", *numbered, *(f"  ! {one}" for one in sentences)]))


@dataclass(frozen=True, slots=True)
class Explored:
    """How much of a world was seen. `closed` says that there is no more of it."""

    world: str
    states: int
    transitions: int
    depth: int
    closed: bool
    seconds: float

    def __str__(self) -> str:
        whole = "closed" if self.closed else "cut off"
        size = f"{self.states} states, {self.transitions} transitions, {self.depth} steps deep"
        rate = f"{self.states / self.seconds:.0f} states and {self.transitions / self.seconds:.0f} transitions"
        return f"{self.world}: {size}, {whole}; {rate} a second"


def explore(machine: Machine, states_max: int | None = None) -> Explored:
    """Look at every state, or at the nearest `states_max`. Raises Violation at the first that is wrong."""
    began = time.perf_counter()
    world, start = machine.world, machine.start()
    sent = {task_id(SENDER, one.message_id): fingerprint(one) for one in world.envelopes()}
    found: Found = {key(world, start): (None, "", 0)}
    frontier = deque([(key(world, start), start)])
    transitions = 0
    while frontier and (states_max is None or len(found) < states_max):
        here, state = frontier.popleft()
        for name, after, wrong in _moves(machine, state):
            transitions += 1
            if wrong:
                raise Violation([*_path(found, here), name], wrong)
            if (there := _met(machine, found, here, name, (state, after))) is None:
                continue
            if wrong := violations(after.contents, sent):
                raise Violation(_path(found, there), wrong)
            frontier.append((there, after))
    depth = max(steps for _, _, steps in found.values())
    return Explored(world.name, len(found), transitions, depth, not frontier, time.perf_counter() - began)


def _met(machine: Machine, found: Found, here: Key, name: str, ends: tuple[State, State]) -> Key | None:
    """The key of the state that a move leads to, if nobody was there before."""
    before, after = ends
    if after.contents is before.contents and (after.held, after.now) == (before.held, before.now):
        return None
    there = key(machine.world, after)
    if there in found:
        return None
    found[there] = (here, name, found[here][2] + 1)
    return there


def _moves(machine: Machine, state: State) -> Iterator[Move]:
    """Everything that may happen next: time passes, somebody dies, or does something, which may go wrong."""
    world = machine.world
    yield "clock: ticks", machine.tick(state, TICK_SECONDS), []
    for actor in sorted({one.actor for one in state.held}):
        if "dies" in world.fates:
            yield f"{actor}: dies", machine.forget(state, actor), []
    for step in steps(world, state.held):
        taken = machine.take(state, step)
        yield str(step), taken.after, broken(world, state, taken)
        for wrong in fates(world, step, taken.writes):
            ended = machine.take(state, wrong)
            yield str(wrong), ended.after, broken(world, state, ended)


def _path(found: Found, end: Key) -> list[str]:
    path: list[str] = []
    at: Key | None = end
    while at is not None:
        at, name, _ = found[at]
        path.append(name)
    return path[-2::-1]
