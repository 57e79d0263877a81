"""What time it is: the database's clock, or one that a test sets by hand.

A verb reads its clock once and uses that reading for every column and comparison. On PostgreSQL the reading comes from
`clock_timestamp()`, because `now()` stands still from the transaction's start and would accept a lease that ran out
while the verb waited for a lock. SQLite runs in this process, so the host's clock is the database's.
"""

from __future__ import annotations

import threading
import time
from typing import Literal, TypeAlias

import sqlalchemy as sa

from recovery import backend
from recovery.accepting import checked_seconds
from recovery.errors import Misconfigured

EPOCH_BOUND = float(2**53)
"""Times are seconds since the epoch, smaller than this in size."""


class ManualClock:
    """A clock for tests. It stands until `advance` moves it, and it cannot go backwards. Safe between threads."""

    def __init__(self, now: float = 1_000.0) -> None:
        self._now = checked_seconds(now, "now", -EPOCH_BOUND, EPOCH_BOUND, Misconfigured)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ManualClock({self._now!r})"

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Move forward by `seconds` (0 or more) and return the new time."""
        step = checked_seconds(seconds, "seconds", 0.0, EPOCH_BOUND, Misconfigured)
        with self._lock:
            self._now += step
            return self._now


def read(connection: sa.Connection, clock: ManualClock | None) -> float:
    """The time in seconds since the epoch. A verb that waits for a row calls this after it got the row's lock."""
    backend.begun(connection)
    if clock is not None:
        return clock.now
    at = backend.of(connection)
    return time.time() if at.clock is None else float(backend.rows(connection, _server, (at,), {})[0].now)


Hand: TypeAlias = Literal["server", "hand"]
"""Who tells the time inside a statement: the database's server, or a parameter `p_now`."""


def by(at: backend.Backend, clock: ManualClock | None) -> Hand:
    """Who tells the time inside a statement for this backend and clock."""
    return "server" if clock is None and at.clock is not None else "hand"


def expression(at: backend.Backend, hand: Hand) -> sa.ColumnElement[float]:
    """The time inside a statement.

    On a server it is evaluated where it stands: inside RETURNING, or above the rows that it depends on, that is after
    they were locked.
    """
    return at.clock if hand == "server" and at.clock is not None else backend.param("now")


def _server(at: backend.Backend) -> sa.Select[tuple[float]]:
    assert at.clock is not None
    return sa.select(at.clock.label("now"))
