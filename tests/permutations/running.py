"""One run of a play: who may go on now, who waits for whom, and what came out at the end."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recovery.testing.history import Operation
from tests.permutations.acting import EVERY, PATIENCE_SECONDS, SHARED, SHARED_OR_CLOCK, Actor, Call, Changed
from tests.permutations.place import Beginning, Hindrance, Place, Rows

CLOCK: Final = "clock"
"""The name of a third who acts, by one step: it turns the clock."""
HOLDER: Final = "holder"
"""The name of another who has one step left: it ends a transaction that hinders both from the beginning."""
LOOK_SECONDS: Final = 0.003
LOOK_SECONDS_MAX: Final = 0.03
"""After how long somebody who does not halt is looked for among those who wait. It delays, and decides nothing."""


@dataclass(frozen=True, slots=True)
class Play:
    """What is run: from which beginning, who calls what in which order, to what the clock is turned meanwhile.

    `hindrance` is a transaction of somebody else that is open at first.
    """

    beginning: Beginning
    calls: Mapping[str, Sequence[Call]]
    tick: int | None = None
    hindrance: Hindrance | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers of each actor, and what the tables hold, as text."""

    answers: tuple[tuple[str, tuple[str, ...]], ...]
    tables: str

    def __str__(self) -> str:
        said = "; ".join(f"{name}: {', '.join(answers) or 'nothing'}" for name, answers in self.answers)
        return f"{said}\n    {self.tables}"


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of one run, with all that a checker wants."""

    outcome: Outcome
    rows: Rows
    now: int
    operations: tuple[Operation, ...]


class Stage:
    """Two actors over one place. They halt before every statement where that is asked for."""

    def __init__(self, place: Place, url: str, *, every_statement: bool = False) -> None:
        self.place, self.changed, self.every_statement = place, Changed(), every_statement
        self.actors = {name: Actor(name, url, self.changed) for name in "ab"}

    def close(self) -> None:
        """End both."""
        for actor in self.actors.values():
            actor.close()


class Run:
    """One run, from the beginning; `schedule` is who went on, in order. `whole` makes each call one step.

    `waited` are those who waited for a lock at any time, `outwaited` those who did while the clock was turned. A run
    that came to where another one was may be left there, unless it matters what those answer who waited before.
    """

    def __init__(self, stage: Stage, play: Play, *, whole: bool = False) -> None:
        self._place, self._changed, self._actors = stage.place, stage.changed, stage.actors
        self._whole, self._tick, self._is_hindered = whole, play.tick, play.hindrance is not None and not whole
        self.schedule: list[str] = []
        self.waits, self.deadlocks = 0, 0
        self._waiting: frozenset[str] = frozenset()
        self.waited, self.outwaited = set[str](), set[str]()
        self.may_be_left, self.is_left = play.tick is None and play.hindrance is None, False
        self._begun_at = dict.fromkeys(stage.actors, play.beginning.now)
        self._place.put_back(play.beginning)
        if self._is_hindered and play.hindrance is not None:
            self._place.hinder(play.hindrance)
        self._changed.committed.clear()
        is_step = EVERY if stage.every_statement else SHARED if play.tick is None else SHARED_OR_CLOCK
        for name, actor in stage.actors.items():
            actor.begin(play.calls.get(name, ()), is_step)
        self._until_still()

    def choices(self) -> list[str]:
        """Who can go on: everybody who halts, the clock, and whoever hinders."""
        halting = [name for name, actor in self._actors.items() if actor.state == "halts"]
        others = [name for name, is_there in ((CLOCK, self._tick is not None), (HOLDER, self._is_hindered)) if is_there]
        return halting + others

    def take(self, name: str) -> None:
        """Let one go on: by one step, or, where calls are taken whole, to the end of its call."""
        self.schedule.append(name)
        if name == CLOCK:
            assert self._tick is not None
            self._place.turn(self._tick)
            self._tick = None
            self.outwaited |= self._waiting
        elif name == HOLDER:
            self._place.unhinder()
            self._is_hindered = False
            self._until_still()
        else:
            actor = self._actors[name]
            self._begun_at[name] = self._place.now
            self._step(actor)
            while self._whole and actor.state == "halts" and not actor.between_calls:
                self._step(actor)

    def state(self) -> Hashable:
        """What decides all that can follow.

        What each was answered and does next, who committed in which order, who waits in a statement that began when,
        and what the others have left to do.
        """
        seen = [(one.state, one.next, tuple(one.history)) for one in self._actors.values()]
        waiting = frozenset((name, self._begun_at[name]) for name in self._waiting)
        return (*seen, tuple(self._changed.committed), waiting, self._tick, self._is_hindered)

    def retries(self) -> int:
        """How often a transaction was begun again inside the library."""
        return sum(actor.retries for actor in self._actors.values())

    def ended(self) -> Ended:
        """What came out, once nobody has anything left to do."""
        assert all(actor.state == "idle" for actor in self._actors.values())
        rows = self._place.rows()
        answers = tuple((name, tuple(actor.answers)) for name, actor in self._actors.items())
        operations = tuple(one for actor in self._actors.values() for one in actor.notes.operations.values())
        return Ended(Outcome(answers, _comparable(rows)), rows, self._place.now, operations)

    def abandon(self) -> None:
        """Let everybody run to an end that nobody looks at."""
        self.is_left = True
        actors = list(self._actors.values())
        for actor in actors:
            actor.let_go()
        self._place.unhinder()
        self._changed.wait(lambda: all(actor.state == "idle" for actor in actors), PATIENCE_SECONDS)

    def _step(self, actor: Actor) -> None:
        actor.step()
        self._changed.wait(actor.is_still, LOOK_SECONDS)
        self._until_still()

    def _until_still(self) -> None:
        """Return when everybody halts, is at the end, or waits for somebody who can still go on."""
        until = time.monotonic() + PATIENCE_SECONDS
        in_deadlock, look = False, LOOK_SECONDS
        while running := [actor for actor in self._actors.values() if not actor.is_still()]:
            if self._place.waiting() == len(running):
                if self._is_hindered or any(actor.state == "halts" for actor in self._actors.values()):
                    break
                in_deadlock = True  # The server finds it after its deadlock_timeout, and ends one of them.
            assert time.monotonic() < until, f"{[actor.name for actor in running]} neither halt nor wait"
            self._changed.wait(functools.partial(_is_any_still, running), look)
            look = min(2 * look, LOOK_SECONDS_MAX)
        self._note(frozenset(actor.name for actor in running))
        self.deadlocks += in_deadlock
        for actor in self._actors.values():
            actor.raise_error()

    def _note(self, waiting: frozenset[str]) -> None:
        self.waits += len(waiting - self._waiting)
        self.waited |= waiting
        self._waiting = waiting


def _is_any_still(actors: Sequence[Actor]) -> bool:
    return any(actor.is_still() for actor in actors)


def _comparable(rows: Rows) -> str:
    """The tables without what numbers their rows; of the journal the order within each task and each reply."""
    told: dict[str, Any] = {
        name: [{column: value for column, value in row.items() if column != "arrival"} for row in found]
        for name, found in rows.items()
        if name != "journal"
    }
    journal: dict[str, list[dict[str, Any]]] = {}
    for row in rows["journal"]:
        move = {column: value for column, value in row.items() if column != "seq"}
        journal.setdefault(f"{row['subject']} {row['task_id']}", []).append(move)
    return json.dumps(told | {"journal": journal}, sort_keys=True)
