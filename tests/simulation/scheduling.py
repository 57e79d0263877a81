"""One process in which everybody takes turns, in an order that a seed decides, under a clock that only it moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from recovery import ManualClock
from tests.worlds.memory import Died

TICK_SECONDS: Final = 0.5
"""Everything takes a whole number of ticks, so that things happen just at the end of a lease, and just before."""


class Wait(NamedTuple):
    """What an actor yields: for how long it waits at most, and whether a letter wakes it."""

    seconds: float
    for_mail: bool = False


Life: TypeAlias = Generator[Wait, Any, None]
"""An actor from its birth to its end; each Wait is answered with a letter, or None where the time ran out."""


@dataclass(slots=True)
class Actor:
    """Somebody who takes turns. What it knows is in its life, and lost with it; so are the letters it has not read."""

    name: str
    birth: Callable[[], Life]
    life: Life | None = None
    mail: deque[Any] = field(default_factory=deque)
    wait: Wait | None = None
    turn: int = 0


class Chances(NamedTuple):
    """How likely each thing is to go wrong, from 0 to 1."""

    loss: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    death: float = 0.0
    bad_commit: float = 0.0


ROUGH: Final = Chances(loss=0.2, repeat=0.2, delay=0.5, death=0.01, bad_commit=0.12)
CALM: Final = Chances()


class Scheduler:
    """Who comes next is drawn among those whose time has come; time moves on when there is nobody."""

    def __init__(self, random: Random, clock: ManualClock, note: Callable[[str, str], None]) -> None:
        self.random, self.clock, self._note = random, clock, note
        self.chances = ROUGH
        self._actors: dict[str, Actor] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def add(self, name: str, birth: Callable[[], Life]) -> None:
        """Somebody new, who begins at once."""
        actor = self._actors[name] = Actor(name, birth)
        self._at(0.0, lambda: self._begin(actor))

    def send(self, to: str, letter: Any) -> None:
        """Put a letter on the way: it may be lost, come twice, late, and after those that were sent later."""
        copies = 0 if self.happens(self.chances.loss) else 2 if self.happens(self.chances.repeat) else 1
        for _ in range(copies):
            late = self.happens(self.chances.delay)
            self._at(TICK_SECONDS * self.random.randint(1, 12) if late else 0.0, lambda: self._arrive(to, letter))

    def happens(self, chance: float) -> bool:
        """Draw whether something happens."""
        return self.random.random() < chance

    def run(self, turns_max: int, is_over: Callable[[], bool]) -> bool:
        """Take turns until it is over, at most so many. Says whether it is."""
        for _ in range(turns_max):
            if is_over():
                return True
            self._take_turn()
        return is_over()

    def _take_turn(self) -> None:
        now = self.clock.now
        due = [one for one in self._agenda if one[0] <= now]
        if not due:
            self.clock.advance(min(self._agenda)[0] - now)
            return
        chosen = self.random.choice(due)
        self._agenda.remove(chosen)
        chosen[2]()

    def _at(self, seconds: float, event: Callable[[], None]) -> None:
        self._count += 1
        self._agenda.append((self.clock.now + seconds, self._count, event))

    def _begin(self, actor: Actor) -> None:
        actor.life = actor.birth()
        self._resume(actor, None)

    def _arrive(self, to: str, letter: Any) -> None:
        actor = self._actors[to]
        if actor.life is None:
            return  # Nobody is at home, and nothing keeps it for later.
        actor.mail.append(letter)
        if actor.wait is not None and actor.wait.for_mail:
            self._resume(actor, actor.mail.popleft())

    def _wake(self, actor: Actor, turn: int) -> None:
        if actor.turn == turn:
            has_mail = actor.wait is not None and actor.wait.for_mail and actor.mail
            self._resume(actor, actor.mail.popleft() if has_mail else None)

    def _resume(self, actor: Actor, letter: Any) -> None:
        assert actor.life is not None
        actor.turn += 1
        actor.wait = None
        if self.happens(self.chances.death):
            self._note(actor.name, "dies in between")
            self._bury(actor)
            return
        try:
            actor.wait = actor.life.send(letter)
        except StopIteration:
            actor.life = None
        except Died:
            self._bury(actor)
        else:
            turn = actor.turn
            self._at(0.0 if actor.wait.for_mail and actor.mail else actor.wait.seconds, lambda: self._wake(actor, turn))

    def _bury(self, actor: Actor) -> None:
        """It knows nothing any more, and begins again in a while."""
        if actor.life is not None:
            actor.life.close()
        actor.life = None
        actor.mail.clear()
        actor.turn += 1
        self._at(TICK_SECONDS * self.random.randint(1, 10), lambda: self._begin(actor))
