"""A queue at the door of a SQLite file: who came first writes first.

SQLite's busy wait sleeps and looks again, so a writer that has just committed takes the lock once more while the others
sleep; some never get it. Here a writer stands in line before it asks for the lock. BEGIN IMMEDIATE stays the lock: the
line is only manners, and where it cannot be had, or somebody in it is frozen, writers go on without.

The line is a row of byte locks on an empty file, `<database>-turns`. A writer locks the byte whose number is the time
in nanoseconds, and it is its turn when no byte before its own is locked. These are open-file-description locks, which
only Linux has: the kernel takes them back from a killed process, and each connection has its own, also among the
threads of one process. Nothing is stored, so nothing can be left over.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from typing import Final
from weakref import WeakSet

PATIENCE_SECONDS: Final = 0.25
"""How long somebody may stand at the head of the line without moving before the others pass."""
LOOK_SECONDS_MIN: Final = 0.00005
LOOK_SECONDS_MAX: Final = 0.01
FIRST_PACE_SECONDS: Final = 0.002
"""How long a turn is, to somebody who has not yet seen one: many who come at once must not all look at once."""
COUNTED_MAX: Final = 16

SUPPORTED: Final = hasattr(fcntl, "F_OFD_SETLK")
_SET: Final[int] = getattr(fcntl, "F_OFD_SETLK", 0)
_GET: Final[int] = getattr(fcntl, "F_OFD_GETLK", 0)
_FLOCK: Final = struct.Struct("@hhqqi4x")
"""C's `struct flock` with 64-bit offsets: type, whence, start, length (0: without end), process (0 for these locks)."""


def _bytes(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


_DROP: Final = _bytes(fcntl.F_UNLCK, 0, 0)
_NOBODY: Final = _DROP[:2]


class Turns:
    """One connection's place in the line. For one thread at a time; nothing is opened before the first `take`."""

    __slots__ = ("__weakref__", "_descriptor", "_floor", "_pace_seconds", "_path", "_taken", "_usable")

    def __init__(self, path: str) -> None:
        self._path = f"{path}-turns"
        self._descriptor = -1
        self._usable = SUPPORTED
        self._taken = False
        self._floor = 0
        self._pace_seconds = FIRST_PACE_SECONDS
        _all.add(self)

    def take(self, seconds: float) -> float:
        """Stand in line until it is our turn, at most `seconds`, and return the seconds that it took.

        The place is held until `drop`, also when the time ran out. Never raises OSError: where there is no line, the
        answer is 0.0 at once.
        """
        if not self._usable:
            return 0.0
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            self._taken = True
            place = self._stood_at()
            return self._waited(place, seconds) if self._ahead_of(place, self._floor) >= 0 else 0.0
        except OSError:
            self._do_without()
            return 0.0

    def drop(self) -> None:
        """Let the next one go. Does nothing where nothing was taken."""
        if not self._taken:
            return
        self._taken = False
        try:
            fcntl.fcntl(self._descriptor, _SET, _DROP)
        except OSError:
            self._do_without()

    def close(self) -> None:
        """Drop, and close the file. Another `take` would open it again."""
        descriptor, self._descriptor, self._taken = self._descriptor, -1, False
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def _stood_at(self) -> int:
        """Lock our byte, and return its number."""
        place = time.time_ns()
        while True:
            try:
                fcntl.fcntl(self._descriptor, _SET, _bytes(fcntl.F_WRLCK, place, 1))
            except BlockingIOError:  # Somebody came in the same nanosecond.
                place += 1
            else:
                break
        if place < self._floor:  # The clock was set back.
            self._floor = 0
        return place

    def _ahead_of(self, place: int, start: int) -> int:
        """Who has stood longest between `start` and our place; -1 where there is nobody."""
        if start >= place:
            return -1
        answer = fcntl.fcntl(self._descriptor, _GET, _bytes(fcntl.F_WRLCK, start, place - start))
        return -1 if answer.startswith(_NOBODY) else _start(answer)

    def _waited(self, place: int, seconds: float) -> float:
        began = time.monotonic()
        behind = self._count(place)
        self._watch(place, began + seconds)
        waited = time.monotonic() - began
        self._pace_seconds = waited / max(behind, 1)
        return waited

    def _watch(self, place: int, until: float) -> None:
        """Wait for all before `place` to go, or for the time to run out."""
        seen, seen_at = -1, 0.0
        while (ahead := self._ahead_of(place, self._floor)) >= 0:
            now = time.monotonic()
            if now >= until:
                return
            if ahead != seen:
                seen, seen_at = ahead, now
            elif now - seen_at >= PATIENCE_SECONDS:
                # Frozen: we go before it, now and for as long as it stands there. No place is ever taken twice.
                self._floor = ahead + 1
                continue
            time.sleep(min(self._look_seconds(self._count(place)), until - now))

    def _count(self, place: int) -> int:
        """How many stand before us, as far as it matters."""
        count, start = 0, self._floor
        while count < COUNTED_MAX and (ahead := self._ahead_of(place, start)) >= 0:
            count, start = count + 1, ahead + 1
        return count

    def _look_seconds(self, behind: int) -> float:
        """How long to sleep: the next in line looks up sixteen times in a turn, the one behind twice, and so on."""
        turns = (behind - 1) / 2 if behind > 1 else 1 / 16
        return min(max(turns * self._pace_seconds, LOOK_SECONDS_MIN), LOOK_SECONDS_MAX)

    def _do_without(self) -> None:
        self.close()
        self._usable = False


def _start(flock: bytes) -> int:
    start: int = _FLOCK.unpack(flock)[2]
    return start


def _leave_parent() -> None:
    """In a fork's child, whose copies would keep a killed parent's places. To close them drops none of the parent's."""
    for turns in list(_all):
        turns.close()


_all: WeakSet[Turns] = WeakSet()
os.register_at_fork(after_in_child=_leave_parent)
