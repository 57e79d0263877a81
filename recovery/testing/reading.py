"""Reading both databases with the plain drivers and plain SQL, each in one snapshot."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import sqlalchemy as sa

from recovery.testing.evidence import QueueRows, ReceiverRows, Row

COLUMNS: Final = {
    "inbox": ("task_id", "principal", "message_id", "fingerprint"),
    "tasks": (
        *("task_id", "state", "deadline", "hops", "max_attempts", "attempts", "fence", "available_at", "owner"),
        *("lease_until", "result", "reason"),
    ),
    "outbox": (
        *("reply_id", "task_id", "status", "payload", "state", "max_attempts", "attempts", "fence", "available_at"),
        *("owner", "lease_until"),
    ),
    "journal": ("seq", "at", "task_id", "subject", "from_state", "to_state", "owner", "fence", "attempt"),
    "receipts": ("reply_id", "content_hash", "payload"),
    "effects": ("reply_id",),
}
"""What is looked at of each table."""


class Snapshot:
    """A database as it is at one moment, open while the context lasts."""

    def __init__(self, driver: Any, error: type[Exception], clock: str) -> None:
        self._driver = driver
        self.error = error
        self._clock = clock

    def now(self) -> float:
        """The database's clock, in seconds since the epoch."""
        return float(self.all(self._clock)[0][0])

    def rows(self, prefix: str, table: str) -> list[Row]:
        """Every row of a table of recovery's."""
        names = COLUMNS[table]
        found = self.all(f"SELECT {', '.join(names)} FROM {prefix}{table}")  # noqa: S608 - names of ours
        return [dict(zip(names, row, strict=True)) for row in found]

    def all(self, statement: str) -> list[Any]:
        """What a statement answers."""
        cursor = self._driver.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall())


def read_queue(url: str, prefix: str = "") -> QueueRows:
    """Every row of a queue. Raises what the driver raises."""
    with snapshot(url) as seen:
        inbox, tasks, outbox, journal = (seen.rows(prefix, name) for name in ("inbox", "tasks", "outbox", "journal"))
        return QueueRows(inbox, tasks, outbox, journal, seen.now())


def read_receiver(url: str, prefix: str = "", own_effects: str | None = None) -> ReceiverRows:
    """Every row of a receiver. `own_effects` names a table of its own that has a column `reply_id`."""
    with snapshot(url) as seen:
        own = None if own_effects is None else [row[0] for row in seen.all(f"SELECT reply_id FROM {own_effects}")]  # noqa: S608
        return ReceiverRows(seen.rows(prefix, "receipts"), seen.rows(prefix, "effects"), own)


def snapshot(url: str) -> AbstractContextManager[Snapshot]:
    """A read-only look at the database of a SQLAlchemy URL."""
    parsed = sa.make_url(url)
    return _sqlite(parsed) if parsed.get_backend_name() == "sqlite" else _postgresql(parsed)


@contextlib.contextmanager
def _sqlite(url: sa.URL) -> Iterator[Snapshot]:
    driver: Any = sqlite3
    if url.drivername == "sqlite+pysqlite3":  # Two SQLite libraries on one file in one process drop each other's locks.
        from pysqlite3 import dbapi2 as driver
    with contextlib.closing(driver.connect(url.database, timeout=30.0, isolation_level=None)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield Snapshot(connection, driver.Error, "SELECT (julianday('now') - 2440587.5) * 86400.0")
        connection.execute("ROLLBACK")


@contextlib.contextmanager
def _postgresql(url: sa.URL) -> Iterator[Snapshot]:
    import psycopg

    with psycopg.connect(plain(url), autocommit=True, prepare_threshold=None) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield Snapshot(connection, psycopg.Error, "SELECT extract(epoch FROM clock_timestamp())")
        connection.execute("ROLLBACK")


def plain(url: sa.URL) -> str:
    """The same database in the words of libpq, password and all."""
    # No URL: SQLAlchemy writes a blank as a plus, which libpq takes for one.
    from psycopg.conninfo import make_conninfo

    _, given = url.get_dialect()().create_connect_args(url)  # Also for several hosts, in both forms that it takes.
    return make_conninfo("", **given)
