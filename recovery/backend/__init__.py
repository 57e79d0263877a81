"""Everything in which the two databases differ: how to open one, begin, wait, tell the time, and name an error.

A backend is chosen by URL. The rest of the library asks `of(connection)` and never looks at a dialect's name.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine.base import OptionEngineMixin
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import ArgumentError

from recovery.backend.base import (
    BUSY_SECONDS,
    Backend,
    Begin,
    Bounds,
    Phase,
    Pool,
    begin_next,
    end_next,
    forget_begin,
    is_database_error,
    on_commit,
    original,
    refuse_autocommit,
    translate,
    without_values,
)
from recovery.backend.postgresql import PostgreSQL
from recovery.backend.sqlite import SQLite, module_of
from recovery.backend.statement import (
    begun,
    change,
    change_each,
    change_rows,
    first_each,
    leave_line,
    param,
    ready,
    rows,
    rows_each,
    unnested,
)
from recovery.errors import Misconfigured

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = [
    "Backend",
    "Begin",
    "Bounds",
    "Phase",
    "begin_next",
    "begun",
    "change",
    "change_each",
    "change_rows",
    "end_next",
    "first_each",
    "for_url",
    "forget_begin",
    "in_threads",
    "is_database_error",
    "is_prepared",
    "leave_line",
    "of",
    "open_async_engine",
    "open_engine",
    "original",
    "param",
    "parse",
    "prepare_engine",
    "ready",
    "refuse_autocommit",
    "rows",
    "rows_each",
    "sqlite_module",
    "translate",
    "unnested",
    "without_values",
]

_BACKENDS: dict[str, Backend] = {"sqlite": SQLite(), "postgresql": PostgreSQL()}
_prepared: WeakSet[Dialect] = WeakSet()
_KNOWN = "recovery.backend"


def of(bind: sa.Connection | sa.Engine) -> Backend:
    """The backend of an engine or connection. Raises Misconfigured for a database that is neither of the two."""
    known: Backend | None = vars(bind).get(_KNOWN)
    if known is not None:
        return known
    found = _BACKENDS.get(bind.dialect.name)
    if found is None:
        raise Misconfigured(f"recovery keeps its tables in SQLite or PostgreSQL, not in {bind.dialect.name}.")
    vars(bind)[_KNOWN] = found  # Asked several times in every verb.
    return found


def parse(url: str | sa.URL) -> sa.URL:
    """Read a database URL. Raises Misconfigured, without repeating the URL: it may hold a password."""
    parsed = _read(url)
    if parsed is None:
        raise Misconfigured("the database URL cannot be read; write sqlite:///file.db or postgresql://…")
    scheme = parsed.drivername.partition("+")[0]
    if scheme == "postgres":
        raise Misconfigured("write postgresql:// at the start of the URL; SQLAlchemy does not know postgres://.")
    if scheme not in _BACKENDS:
        raise Misconfigured("recovery opens sqlite:///file.db or postgresql://… URLs, and this is neither.")
    return _BACKENDS[scheme].checked_url(parsed)


def _read(url: str | sa.URL) -> sa.URL | None:
    # What goes wrong here quotes the URL, also as a cause: `int()` repeats a password that stands where a port should.
    try:
        return sa.make_url(url)
    except (ArgumentError, ValueError, TypeError):
        return None


def open_engine(
    url: str | sa.URL, *, create: bool = False, pool_size: int = 5, busy_seconds: float = BUSY_SECONDS
) -> sa.Engine:
    """An engine as recovery needs it, for `Queue(engine)` or `Receiver(engine)`. The caller disposes of it.

    `create` lets SQLite make the file; without it a missing file is SchemaMismatch. `busy_seconds` bounds the wait for
    a connection where all are in use. Nothing is connected yet.
    """
    parsed = parse(url)
    pool = Pool(pool_size, busy_seconds)
    return prepare_engine(_BACKENDS[parsed.get_backend_name()].engine(parsed, create=create, pool=pool))


def open_async_engine(url: str | sa.URL, *, pool_size: int = 5, busy_seconds: float = BUSY_SECONDS) -> AsyncEngine:
    """The same for asyncio, on PostgreSQL. SQLite has none: there `AsyncQueue` works through threads."""
    parsed = parse(url)
    engine = _BACKENDS[parsed.get_backend_name()].async_engine(parsed, pool=Pool(pool_size, busy_seconds))
    prepare_engine(engine.sync_engine)
    return engine


def for_url(url: sa.URL) -> Backend:
    """The backend that a URL names."""
    return _BACKENDS[url.get_backend_name()]


def sqlite_module(url: sa.URL) -> ModuleType | None:
    """The SQLite library that a URL asks for; None for a URL of another database."""
    return module_of(url) if url.get_backend_name() == "sqlite" else None


def in_threads(url: sa.URL) -> bool:
    """Whether asyncio reaches this database through threads, and not through an asynchronous driver."""
    return _BACKENDS[url.get_backend_name()].in_threads


def prepare_engine(engine: sa.Engine) -> sa.Engine:
    """Make a caller's engine fit for recovery, before its first connection, and return it.

    On SQLite every connection gets WAL's companions (foreign keys, `synchronous=FULL`, a busy timeout; one that writes
    much also `journal_size_limit`, where it has none) and sends its own BEGIN, so that a SAVEPOINT is what it says. On
    PostgreSQL the driver's automatic prepared statements are turned off, which PgBouncer in transaction mode cannot
    follow; recovery's own writing transactions prepare their statements where a connection is seen to reach the server
    itself. On both, `hide_parameters` is set, so that no log shows a payload. Raises Misconfigured for another driver,
    for AUTOCOMMIT, for an in-memory database, for what `engine.execution_options()` returned, and for an engine that
    has connected already.
    """
    backend = of(engine)
    backend.check_engine(engine)
    if isinstance(engine, OptionEngineMixin):
        raise Misconfigured("give prepare_engine the engine itself, and take execution_options() of it afterwards.")
    if engine.dialect in _prepared:
        return engine
    if _has_connected(engine):
        raise Misconfigured("give the engine to prepare_engine before its first connection.")
    sa.event.listen(engine, "connect", backend.on_connect)
    sa.event.listen(engine, "checkin", backend.on_checkin)
    sa.event.listen(engine, "begin", backend.on_begin)
    sa.event.listen(engine, "close", backend.on_close)
    sa.event.listen(engine, "commit", on_commit)
    sa.event.listen(engine, "handle_error", backend.on_error)
    engine.hide_parameters = True
    if engine.dialect.driver == "aiosqlite":
        _keep_quiet("aiosqlite")
    _prepared.add(engine.dialect)
    return engine


def _keep_quiet(name: str) -> None:
    """Let a driver that logs every call with its parameters do so only where somebody asked for it by name."""
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def is_prepared(engine: sa.Engine) -> bool:
    """Whether the engine came from `open_engine` or went through `prepare_engine`."""
    return engine.dialect in _prepared


def _has_connected(engine: sa.Engine) -> bool:
    return "default_schema_name" in vars(engine.dialect)  # What a dialect learns from its first connection.
