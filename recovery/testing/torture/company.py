"""The company of actors: forked from a parent that has opened no connection, and known by their process ids."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

from recovery.testing.torture.actors import Part, live
from recovery.testing.torture.plan import CAST, PLACES, POINTS, Doom, Plan

COUNTDOWN_MAX: Final = {"receive": 12, "claim": 12, "claim_reply": 12, "accept": 12}
"""At which commit of a verb a life may end at the latest; at one of the first two where a verb is rarer."""
DOOMED: Final = 0.7
"""The share of lives that end by their own hand, if nothing else ends them before."""


@dataclass(slots=True)
class Actor:
    """One of the cast, in its current life. Times are those of the host's clock, in seconds since the epoch."""

    role: str
    name: str
    row: int
    lives: int = 0
    pid: int = 0
    born: float = 0.0
    due: float = 0.0
    stopped_until: float | None = None
    doom: Doom | None = None

    @property
    def is_alive(self) -> bool:
        return self.pid != 0

    @property
    def life(self) -> str:
        """The name of the current life."""
        return f"{self.name}.{self.lives}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the scheduler did or saw: when, what, to which life, and until when where it lasts."""

    at: float
    kind: str
    life: str = ""
    until: float | None = None
    detail: str = ""


@dataclass(slots=True)
class Company:
    """All actors. Nothing here decides when something happens to whom."""

    plan: Plan
    listening: socket.socket
    actors: list[Actor] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a life ended at each verb's COMMIT, before or after it."""
    _dooms: dict[str, Iterator[tuple[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = itertools.count()
        for role, count in CAST.items():
            self.actors += [Actor(role, f"{role}-{number}", next(rows)) for number in range(1, count + 1)]
            self._dooms[role] = itertools.cycle(itertools.product(POINTS[role], PLACES))

    def note(self, kind: str, life: str = "", until: float | None = None, detail: str = "", at: float = 0.0) -> None:
        """Remember an event, which is now where no time is given."""
        self.events.append(Event(at or time.time(), kind, life, until, detail))

    def start(self, actor: Actor) -> None:
        """Begin an actor's next life."""
        actor.lives += 1
        chance = self.plan.random("doom", actor.life)
        actor.doom = None
        if not self.plan.tally.calm and chance.random() < DOOMED:
            actor.doom = self._doomed(actor.role, chance)
        part = Part(actor.role, actor.name, actor.row, actor.life, actor.doom)
        actor.born = time.time()
        actor.pid = forked(lambda: live(self.plan, part, self.listening))

    def _doomed(self, role: str, chance: random.Random) -> Doom:
        point = next(self._dooms[role])
        if chance.random() < 0.5:  # noqa: PLR2004 - every other time the one that was met least
            point = min(itertools.product(POINTS[role], PLACES), key=lambda one: self.met[one])
        verb, place = point
        return Doom(verb, place, chance.randint(1, COUNTDOWN_MAX.get(verb, 2)))

    def kill(self, actor: Actor) -> None:
        """End a life from outside, with no warning."""
        self.note("kill", actor.life)
        os.kill(actor.pid, signal.SIGKILL)

    def stop(self, actor: Actor, seconds: float) -> None:
        """Freeze a life for so long."""
        now = time.time()
        actor.stopped_until = now + seconds
        self.note("stop", actor.life, actor.stopped_until, at=now)
        os.kill(actor.pid, signal.SIGSTOP)

    def wake(self, now: float) -> None:
        """Let those go on whose time has come."""
        for actor in self.actors:
            if actor.stopped_until is not None and actor.stopped_until <= now:
                if now < float("inf"):
                    self.note("woken", actor.life)
                actor.stopped_until = None
                os.kill(actor.pid, signal.SIGCONT)

    def ended(self, pid: int, status: int) -> Actor | None:
        """Note how a life ended; whose it was, or None where the process was no actor."""
        actor = next((one for one in self.actors if one.pid == pid), None)
        if actor is None:
            return None
        self.note("life", actor.life, time.time(), detail=_how(status), at=actor.born)
        actor.pid, actor.stopped_until = 0, None
        return actor

    def end(self) -> None:
        """Ask everybody to end, and make sure of it."""
        self.wake(float("inf"))
        for wish in (signal.SIGTERM, signal.SIGKILL):
            for actor in self.actors:
                if actor.is_alive:
                    os.kill(actor.pid, wish)
            self._wait(5.0)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(actor.is_alive for actor in self.actors) and time.monotonic() < until:
            for actor in self.actors:
                if actor.is_alive:
                    pid, status = os.waitpid(actor.pid, os.WNOHANG)
                    if pid:
                        self.ended(pid, status)
            time.sleep(0.01)


def forked(be: Callable[[], NoReturn]) -> int:
    """The id of a new process that does nothing but this."""
    pid = os.fork()
    if pid == 0:
        try:
            be()
        finally:
            os._exit(1)
    return pid


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit {code}"
