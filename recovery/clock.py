"""What time it is: the database's clock, or one that a test sets by hand.

A verb reads its clock once and uses that reading for every column and comparison. On PostgreSQL the reading comes from
`clock_timestamp()`, because `now()` stands still from the transaction's start and would accept a lease that ran out
while the verb waited for a lock. SQLite runs in this process, so the host's clock is the database's.
"""

from __future__ import annotations

import threading
import time

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


def now(connection: sa.Connection, clock: ManualClock | None) -> sa.ColumnElement[float]:
    """The time as a SQL expression: a double, in seconds since the epoch.

    On a server it is evaluated where it stands: inside RETURNING that is after the row's lock was got. Elsewhere it
    is a value that was read just now.
    """
    _begun(connection)
    server = backend.of(connection).clock
    if clock is None and server is not None:
        return server
    return sa.literal(clock.now if clock else time.time(), sa.Double())


def read(connection: sa.Connection, clock: ManualClock | None) -> float:
    """The time in seconds since the epoch. A verb that waits for a row calls this after it got the row's lock."""
    _begun(connection)
    if clock is not None:
        return clock.now
    server = backend.of(connection).clock
    return time.time() if server is None else float(connection.execute(sa.select(server)).scalar_one())


def _begun(connection: sa.Connection) -> None:
    # SQLite waits for the write lock at BEGIN: a time read before that may be ten seconds old when it is used.
    if not connection.in_transaction():
        connection.begin()
