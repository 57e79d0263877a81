"""The loop that workers and dispatchers share: when to go on, when to wait, when to end."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Final

from recovery.errors import Busy, CommitUnknown, Unavailable
from recovery.runtime.pacing import idle_seconds
from recovery.runtime.stopping import Stop

AWAY_SECONDS: Final = 60.0
"""How long a database may be away before a loop gives up: a restart is shorter, and a supervisor wants to know."""


def loop(stop: Stop, one: Callable[[], bool], is_open: Callable[[], bool], *, drain: bool, once: bool) -> None:
    """Call `one` until stopped; it says whether there was something to do.

    With `once` it is called once; with `drain` the loop ends when there was nothing to do and nothing `is_open`. A busy
    database is asked again after a pause. Raises Unavailable or CommitUnknown when the database was away for a minute;
    with `once` they and Busy are raised at once.
    """
    if once:
        one()
        return
    empty = 0
    away = Patience(AWAY_SECONDS)
    while not stop.wanted:
        try:
            did = one()
            if not did and drain and not is_open():
                return
            away.reset()
        except Busy:
            did = False  # Others were quicker for as long as the bound.
            away.reset()
        except (Unavailable, CommitUnknown):
            did = False  # What was stored, or not, is settled by leases.
            if away.is_over():
                raise
        empty = 0 if did else empty + 1
        if empty:
            stop.sleep(idle_seconds(empty))


class Patience:
    """Counts from the first time that something went wrong."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._since: float | None = None

    def reset(self) -> None:
        """It went well."""
        self._since = None

    def is_over(self) -> bool:
        """It went wrong: whether it has for too long now."""
        if self._since is None:
            self._since = self._now()
        return self._now() - self._since >= self._seconds


def owner_name() -> str:
    """Who holds what this process claims, where nobody gave it a name."""
    return f"{socket.gethostname()[:64]}-{os.getpid()}"
