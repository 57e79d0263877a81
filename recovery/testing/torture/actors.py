"""One life of an actor: a forked process that opens its own connections, plays its role, and may die at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from recovery.errors import Busy, CommitUnknown, Fenced, PayloadCollision, Unavailable
from recovery.queue import Queue
from recovery.receiver import Receiver
from recovery.testing.history import SUFFIX
from recovery.testing.recording import Recorded, RecordedQueue, RecordedReceiver
from recovery.testing.torture import clocks
from recovery.testing.torture.diary import Diary
from recovery.testing.torture.dying import Commits
from recovery.testing.torture.plan import JUMP_SECONDS, JUMPS, SETTINGS, Doom, Plan

WELL, BROKEN = 0, 70
"""How a life ends that was asked to, and one that met an error of its own."""
PAUSE_SECONDS: Final = 0.05
EXPECTED: Final = (Busy, Unavailable, CommitUnknown, Fenced, PayloadCollision)
"""What faults and rivals bring; each is in the history, and the actor goes on."""


@dataclass(frozen=True, slots=True)
class Part:
    """Whose life it is: the role, the actor's name and row in the tally, and the name of this life."""

    role: str
    actor: str
    row: int
    life: str
    doom: Doom | None


class Role(Protocol):
    """What an actor does."""

    def step(self) -> bool:
        """Do one thing; False where the actor has nothing left to do, ever."""
        ...


class Life:
    """What a role plays with: the plan, its own chance and diary, and whether it is time to go."""

    def __init__(self, plan: Plan, part: Part, listening: socket.socket) -> None:
        self.plan = plan
        self.part = part
        self.listening = listening
        self.chance: random.Random = plan.random("life", part.life)
        self.diary = Diary(plan.histories / f"{part.life}{SUFFIX}", part.life, plan.tally, part.row)
        self.over = False
        jumps = plan.clocks_jump and self.chance.random() < JUMPS
        self._steps_to_jump = self.chance.randrange(20) if jumps else -1
        self._parent = os.getppid()

    @property
    def goes_on(self) -> bool:
        """Whether nobody asked for the end, and whoever would ask is still there."""
        return not self.over and os.getppid() == self._parent

    def tick(self) -> None:
        """Count one step; at one of them the clock may jump."""
        if self._steps_to_jump == 0 and not self.plan.tally.calm:
            self.plan.tally.add(self.part.row, "jumps")
            clocks.shift(self.chance.choice((-JUMP_SECONDS, JUMP_SECONDS)))
        self._steps_to_jump -= 1

    def stop(self, *_: object) -> None:
        """Ask for the end; what is at hand is done first."""
        self.over = True

    @contextlib.contextmanager
    def queue(self) -> Iterator[RecordedQueue]:
        """An open queue, or in half of all lives one session of it."""
        with self._opened(lambda: Queue.open(self.plan.url, **SETTINGS)) as queue, contextlib.ExitStack() as stack:
            inner = queue if self.chance.random() < 0.5 else stack.enter_context(queue.session())  # noqa: PLR2004
            yield RecordedQueue(inner, self.diary)

    @contextlib.contextmanager
    def receiver(self) -> Iterator[RecordedReceiver]:
        """An open receiver."""
        with self._opened(lambda: Receiver.open(self.plan.receiver_url)) as receiver:
            yield RecordedReceiver(receiver, self.diary)

    @contextlib.contextmanager
    def _opened(self, open_it: Any) -> Iterator[Any]:
        notes = Recorded(self.diary)
        with notes.note("open", open_it, lambda _: {}) as opened:
            Commits(self.plan, self.part.row, self.chance, self.part.doom, lambda: self.diary.doing).watch(
                opened.engine
            )
            yield opened


def live(plan: Plan, part: Part, listening: socket.socket) -> NoReturn:
    """Live one life in this process, which was just forked, and end it."""
    code = BROKEN
    try:
        code = _lived(plan, part, listening)
    except BaseException:  # noqa: BLE001 - the process ends here, and whatever it was is a finding
        (plan.folder / f"broken-{part.life}.txt").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)


def _lived(plan: Plan, part: Part, listening: socket.socket) -> int:
    from recovery.testing.torture.roles import ROLES

    life = Life(plan, part, listening)
    signal.signal(signal.SIGTERM, life.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everybody; the parent says when to end.
    while life.goes_on:
        try:
            with ROLES[part.role](life) as role:
                _play(life, role)
            return WELL
        except EXPECTED:
            time.sleep(PAUSE_SECONDS)  # It could not even be opened just now.
    return WELL


def _play(life: Life, role: Role) -> None:
    while life.goes_on:
        life.tick()
        try:
            if not role.step():
                return
        except EXPECTED:
            time.sleep(life.chance.uniform(0.0, PAUSE_SECONDS))
