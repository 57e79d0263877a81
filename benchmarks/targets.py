"""Where a benchmark runs: a database that somebody named, and in it a throw-away place for each point.

Nobody's own tables are touched. On PostgreSQL a place is a set of tables under a random prefix, dropped afterwards; on
SQLite it is a file of its own, beside the one that was named, so that it lies on the same disk.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from recovery import AuthContext, Queue, Receiver, migrate, open_engine
from recovery.backend import parse
from recovery.migrate import migration_sql
from recovery.schema import Tables, tables

PRINCIPAL = "bench"
AUTH = AuthContext(PRINCIPAL)
LEASE_SECONDS = 3600.0
"""Longer than any run: a lease that ends in the middle would be a duplicate that nobody made."""


@dataclass(frozen=True, slots=True)
class Place:
    """A set of empty, migrated tables. Goes to worker processes as it is."""

    url: str
    prefix: str

    @property
    def backend(self) -> str:
        """The database system: `sqlite` or `postgresql`."""
        return parse(self.url).get_backend_name()

    @property
    def tables(self) -> Tables:
        """The tables of this place."""
        return tables(self.prefix)

    def engine(self) -> sa.Engine:
        """An engine as the library makes it; the caller disposes of it."""
        return open_engine(self.url)

    def settings(self, **changes: Any) -> dict[str, Any]:
        """What a queue here is opened with."""
        given = {"table_prefix": self.prefix, "allowed_sources": {PRINCIPAL}, "lease_seconds": LEASE_SECONDS}
        return given | changes

    def queue(self, **changes: Any) -> Queue:
        """An open queue; the caller closes it."""
        return Queue.open(self.url, **self.settings(**changes))

    def receiver(self) -> Receiver:
        """An open receiver in the same tables; the caller closes it."""
        return Receiver.open(self.url, table_prefix=self.prefix)


class Target:
    """A database, by its URL; without one a temporary SQLite file."""

    def __init__(self, url: str | None, source: str = "") -> None:
        self.url = url or "sqlite:///"
        self.source = source or ("a temporary SQLite file" if url is None else "--url")
        self._empty: bytes | None = None
        self._ladder: tuple[str, str] | None = None
        self.backend = sa.make_url(self.url).get_backend_name()

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Place]:
        """A place of its own, gone afterwards."""
        if self.backend == "sqlite":
            with self._file() as place:
                yield place
            return
        place = Place(self.url, _new_prefix())
        try:
            self._make(place)
            yield place
        finally:
            drop(place)

    def _make(self, place: Place) -> None:
        """Climb the ladder: through the library the first time, then with the same statements in one message."""
        if self._ladder is None:
            migrate(place.url, table_prefix=place.prefix)
            self._ladder = place.prefix, migration_sql(place.url, table_prefix=place.prefix)
            return
        prefix, statements = self._ladder
        engine = place.engine()
        try:
            with engine.begin() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute(_without_frame(statements).replace(prefix, place.prefix))
        finally:
            engine.dispose()

    @contextlib.contextmanager
    def _file(self) -> Iterator[Place]:
        named = sa.make_url(self.url)
        beside = Path(named.database).absolute().parent if named.database else None
        folder = Path(tempfile.mkdtemp(prefix="recovery-bench-", dir=beside))
        try:
            file = folder / "bench.db"
            url = named.set(database=str(file)).render_as_string(hide_password=False)
            if self._empty is None:
                migrate(url)
                self._empty = file.read_bytes()  # Whole: the last connection took the log in as it closed.
            file.write_bytes(self._empty)
            yield Place(url, "")
        finally:
            shutil.rmtree(folder)


def _new_prefix() -> str:
    return f"bench_{secrets.token_hex(4)}_"


def _without_frame(statements: str) -> str:
    """The statements without their BEGIN and COMMIT: the transaction is ours already."""
    return "\n".join(line for line in statements.splitlines() if line not in ("BEGIN;", "COMMIT;"))


def drop(place: Place) -> None:
    """Drop the tables of a place, whatever was made of them."""
    engine = open_engine(place.url)
    names = [*(table.name for table in reversed(place.tables.metadata.sorted_tables)), place.tables.version.name]
    try:
        with engine.begin() as connection:
            for name in names:
                connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name} CASCADE")
    finally:
        engine.dispose()
