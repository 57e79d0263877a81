"""SQLite in WAL mode: one file, one writer at a time, the host's clock.

The driver is told to keep its hands off transactions (`isolation_level=None`), and BEGIN is sent here: IMMEDIATE for a
verb that writes, so that it waits for the write lock before it reads anything, plain for one that only reads.
"""

from __future__ import annotations

import math
import os
import sqlite3
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.pool import QueuePool

from recovery.backend.base import BUSY_SECONDS, Phase, Pool, began, is_autocommit, refuse_autocommit, taken_begin
from recovery.backend.checkpoints import before_write
from recovery.backend.turns import Turns
from recovery.errors import (
    Busy,
    CommitUnknown,
    Misconfigured,
    ReadOnly,
    RecoveryError,
    SchemaMismatch,
    StatementFailed,
    Unavailable,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_WAIT = "recovery.busy_seconds"
OLDEST = (3, 35, 0)
"""The first SQLite with RETURNING."""

_TURNS = "recovery.turns"
"""Where a line keeps its place in the queue of writers, and where a Connection notes that it stands there now."""
_LATE_SECONDS = 0.05
"""A wait in line shorter than this is not worth a PRAGMA to take it off the busy timeout."""

_ZERO: sa.ColumnElement[int] = sa.literal_column("0")
_ONE: sa.ColumnElement[int] = sa.literal_column("1")
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26
_MISSING_FILE = "the database file does not exist; make it with: recovery migrate, and the same --url."


class SQLite:
    """How recovery works with a SQLite file."""

    name = "SQLite"
    clock: sa.ColumnElement[float] | None = None

    confirming: sa.ColumnElement[Any] = sa.null()
    needs_preparing = True
    composes = False
    one_writer = True
    in_threads = True

    def checked_url(self, url: sa.URL) -> sa.URL:
        if url.drivername not in ("sqlite", "sqlite+pysqlite", "sqlite+pysqlite3"):
            raise Misconfigured("recovery opens SQLite by the standard driver: write sqlite:///file.db.")
        if _is_in_memory(url):
            raise Misconfigured("a database in memory dies with its process; name a file: sqlite:///file.db.")
        if url.username or url.password or url.host or url.port:
            raise Misconfigured("a file has no host and no user: write sqlite:///file.db, with three slashes.")
        if str(url.database).startswith("file:"):
            raise Misconfigured("write the path of the file itself: sqlite:///file.db, and ?mode=ro to only read it.")
        known = {"mode": ("rw", "ro"), "turns": ("on", "off")}
        if any(value not in known.get(name, ()) for name, value in url.query.items()):
            raise Misconfigured("a SQLite URL takes no option but mode=rw or mode=ro, and turns=on or turns=off.")
        return url

    def engine(self, url: sa.URL, *, create: bool, pool: Pool) -> sa.Engine:
        module = module_of(url)
        path = str(Path(url.database or "").absolute())
        target = f"file:{quote(path)}?mode={url.query.get('mode', 'rw')}"

        def connect() -> Any:
            if create:
                _make_private(path)
            if not Path(path).exists():
                raise SchemaMismatch(_MISSING_FILE)
            return module.connect(target, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

        return sa.create_engine(
            sa.URL.create("sqlite+pysqlite", database=path),
            module=module,
            creator=connect,
            poolclass=QueuePool,
            pool_size=pool.size,
            pool_timeout=pool.busy_seconds,
            execution_options={"recovery_turns": url.query.get("turns") != "off" and url.query.get("mode") != "ro"},
        )

    def async_engine(self, url: sa.URL, *, pool: Pool) -> AsyncEngine:
        raise Misconfigured("SQLite has no asynchronous engine here; AsyncQueue.open does it through threads.")

    def check_engine(self, engine: sa.Engine) -> None:
        if engine.dialect.driver not in ("pysqlite", "aiosqlite"):
            raise Misconfigured("recovery works with SQLite through the standard driver: sqlite:///file.db.")
        if _is_in_memory(engine.url):
            raise Misconfigured("a database in memory dies with its process; name a file: sqlite:///file.db.")
        refuse_autocommit("engine", engine.get_execution_options(), engine.dialect)

    def check_database(self, connection: sa.Connection) -> None:
        encoding = connection.exec_driver_sql("PRAGMA encoding").scalar()
        if encoding != "UTF-8":
            raise Misconfigured(f"the database is encoded in {encoding}; recovery needs UTF-8.")
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        if mode != "wal":
            raise Misconfigured(f"the file is in journal mode {mode}; recovery needs WAL: run recovery migrate on it.")

    def check_transaction(self, connection: sa.Connection) -> None:
        """Every SQLite transaction is serializable; there is nothing to refuse."""

    def on_connect(self, driver: Any, record: Any) -> None:
        # Python 3.12 and later: -1 where nobody has set it, which is what the rest here builds on.
        if isinstance(getattr(driver, "autocommit", -1), bool):
            raise Misconfigured("the engine sets Python's autocommit; leave it at the driver's default.")
        driver.isolation_level = None
        cursor = driver.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    def on_begin(self, connection: sa.Connection) -> None:
        begin = taken_begin(connection)
        line = connection.connection
        driver: Any = line.dbapi_connection
        if begin is None:
            if not _at_autocommit(connection):
                _wait_up_to(line.info, driver, BUSY_SECONDS)
                driver.execute("BEGIN")
            return
        seconds = begin.bounds.busy_seconds
        if begin.write:
            before_write(line.info, driver)
            seconds = _left_after_turn(connection, line.info, driver, seconds)
        _wait_up_to(line.info, driver, seconds)
        driver.execute("BEGIN IMMEDIATE" if begin.write else "BEGIN")
        began(connection)

    def on_checkin(self, driver: Any, record: Any) -> None:
        if driver is not None and _WAIT in record.info:
            _wait_up_to(record.info, driver, BUSY_SECONDS)

    def on_error(self, context: ExceptionContext) -> None:
        # A full disk rolls the whole transaction back, and the next statement would commit by itself: lost it is.
        line = context.connection
        if line is None or line.invalidated or not line.in_transaction() or _at_autocommit(line):
            return
        if self.has_lost_transaction(line):
            context.is_disconnect = True
            context.invalidate_pool_on_disconnect = False

    def has_lost_transaction(self, connection: sa.Connection) -> bool:
        return not self.is_in_transaction(connection)

    def on_close(self, driver: Any, record: Any) -> None:
        turns: Turns | None = record.info.pop(_TURNS, None)
        if turns is not None:
            turns.close()

    def ended(self, connection: sa.Connection) -> None:
        turns: Turns | None = vars(connection).pop(_TURNS, None)
        if turns is not None:
            turns.drop()

    def is_in_transaction(self, connection: sa.Connection) -> bool:
        line = connection.connection
        driver: Any = line.dbapi_connection  # The driver's own, or what makes an asynchronous one look like it.
        own: Any = driver if hasattr(driver, "in_transaction") else line.driver_connection
        return bool(own.in_transaction)

    def check_answer(self, connection: sa.Connection) -> None:
        """There is no other server."""

    def lock_to_write(self, connection: sa.Connection, table: sa.Table) -> None:
        # Asks for the write lock without touching a row. A plain BEGIN that reads first and writes later fails at
        # once, whatever the busy timeout, when somebody wrote in between.
        connection.execute(sa.update(table).values({column.name: column for column in table.c}).where(sa.false()))

    def insert_new(self, table: sa.Table, key: str) -> sa.Insert:
        return insert(table).on_conflict_do_nothing(index_elements=[key])

    def arrival(self, table: sa.Table) -> dict[str, Any]:
        # The write lock is held, so nobody else counts at the same time.
        return {"arrival": sa.select(sa.func.coalesce(sa.func.max(table.c.arrival), _ZERO) + _ONE).scalar_subquery()}

    def translate_driver(self, error: Exception, phase: Phase) -> RecoveryError:
        primary = getattr(error, "sqlite_errorcode", 1) & 0xFF
        if primary in (_BUSY, _LOCKED):
            return Busy()
        if primary == _READONLY:
            return ReadOnly()
        if primary == _IOERR and phase == "commit":
            return CommitUnknown()  # The rows may have reached the WAL before it could not be synced.
        if primary in (_FULL, _IOERR):
            return Unavailable("the disk is full or failed; the transaction was rolled back.")
        if primary == _CANTOPEN:
            return Unavailable("the database file, or the -wal and -shm files beside it, cannot be opened.")
        if primary in (_NOTADB, _CORRUPT):
            return Misconfigured("the file is not a SQLite database, or it is damaged.")
        if "no such table" in str(error) or "no such column" in str(error):
            return SchemaMismatch()
        return StatementFailed()

    def is_retryable(self, error: BaseException) -> bool:
        return False

    def has_lost_prepared(self, connection: sa.Connection, error: BaseException) -> bool:
        return False  # The driver prepares, in the connection itself, and anew where it has to.


def _is_in_memory(url: sa.URL) -> bool:
    # The options of a file: URI may stand in its own text as well.
    named = (":memory:", "mode=memory", "vfs=memdb")
    options = ("memory" in url.query.get("mode", ""), "memdb" in url.query.get("vfs", ""))
    return not url.database or any(name in url.database for name in named) or any(options)


def module_of(url: sa.URL) -> ModuleType:
    """The SQLite library: Python's own, or the one that the extra `sqlite` brings where the URL asks for it.

    Never mix the two on one file in one process: each drops the other's file locks when it closes a handle.
    """
    if url.drivername != "sqlite+pysqlite3":
        module: ModuleType = sqlite3
    else:
        try:
            from pysqlite3 import dbapi2 as module
        except ImportError as error:
            raise Misconfigured("sqlite+pysqlite3:// needs an extra: pip install 'recovery[sqlite]'") from error
    if module.sqlite_version_info < OLDEST:
        raise Misconfigured(f"SQLite {module.sqlite_version} is too old; recovery needs 3.35: use recovery[sqlite].")
    return module


def _make_private(path: str) -> None:
    """Make the file, readable by its owner only, before SQLite would make it with the umask."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise Misconfigured(f"the database file cannot be made: {error.strerror}.") from error


def _left_after_turn(connection: sa.Connection, notes: dict[Any, Any], driver: Any, seconds: float) -> float:
    """Stand in line to write, and return what is left of the busy bound for the lock itself."""
    if not connection.get_execution_options().get("recovery_turns", True):
        return seconds
    turns: Turns | None = notes.get(_TURNS)
    if turns is None:
        # The file as SQLite names it, after every symbolic link: all its writers meet at one line.
        path = driver.execute("PRAGMA database_list").fetchone()[2]
        turns = notes[_TURNS] = Turns(path)
    vars(connection)[_TURNS] = turns
    waited = turns.take(seconds)
    return seconds if waited < _LATE_SECONDS else max(seconds - waited, 0.0)


def _wait_up_to(notes: dict[Any, Any], driver: Any, seconds: float) -> None:
    """Set the busy timeout, where it is another one. Whoever borrows the connection finds it as `on_connect` set it."""
    if notes.get(_WAIT, BUSY_SECONDS) != seconds:
        driver.execute(f"PRAGMA busy_timeout = {math.ceil(seconds * 1000)}")
        notes[_WAIT] = seconds


def _at_autocommit(connection: sa.Connection) -> bool:
    return is_autocommit(connection.get_execution_options().get("isolation_level"))
