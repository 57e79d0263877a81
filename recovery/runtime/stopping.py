"""Ctrl-C and SIGTERM: noted at any time, and acted upon only where nothing can be lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SAME_SECONDS: Final = 1.0
"""Signals so close together are one: a terminal and a parent process that forwards both send it."""


class Stopped(KeyboardInterrupt):
    """A signal came in a place that may be interrupted.

    A KeyboardInterrupt, because a handler must not swallow it as an Exception, and because asyncio lets that one, and
    no other BaseException of ours, through callbacks and tasks.
    """


class Stop:
    """A context manager that catches the signals. For the main thread; elsewhere set `wanted`.

    The first signal asks for an end. A later one ends the process at once, by the signal's default action: whatever
    hangs then, a lease gives the work back.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._open = False
        self._first_at = 0.0
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A stretch in which a signal raises Stopped. Everywhere else it only sets `wanted`."""
        self._open = True
        try:
            if self.wanted:
                raise Stopped
            yield
        finally:
            self._open = False

    def sleep(self, seconds: float) -> None:
        """Wait, and cut the wait short at a signal."""
        try:
            with self.interruptible():
                time.sleep(seconds)
        except Stopped:
            return

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.wanted and time.monotonic() - self._first_at > SAME_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if not self.wanted:
            self._first_at = time.monotonic()
        self.wanted = True
        if self._open:
            self._open = False
            raise Stopped

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._caught) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
