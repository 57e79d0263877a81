"""What a backend has to be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import Dialect, ExceptionContext
from sqlalchemy.exc import DBAPIError, PendingRollbackError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from recovery.errors import Busy, Misconfigured, RecoveryError, StatementFailed, Unavailable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_LOST_BEFORE = "8s2b"
"""SQLAlchemy's code for a connection that was lost in a transaction which nobody has rolled back yet."""

Phase = Literal["connect", "work", "commit"]
BUSY_SECONDS: Final = 10.0
_NEXT = "recovery.begin"
_BEGAN = "recovery.began"
_ENDED = (
    "the transaction was ended or broken from inside: what runs in it may not commit, roll back or close, and catches "
    "a database error only around a SAVEPOINT."
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a transaction may wait, in seconds; each is held by the database itself."""

    busy_seconds: float = BUSY_SECONDS
    statement_seconds: float = 30.0
    idle_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Pool:
    """How many connections an engine keeps, and how long a verb waits for one, in seconds."""

    size: int
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class Begin:
    """How the library's next transaction on a connection begins.

    `planned` says that nothing but the library's own statements runs in it, so that its settings may choose their
    plans; `prepared` that these are kept, where that can be had.
    """

    write: bool
    bounds: Bounds
    planned: bool = False
    prepared: bool = False


# The notes lie on SQLAlchemy's Connection itself, which lives as long as somebody has borrowed a line from the pool.


def begin_next(connection: sa.Connection, begin: Begin) -> None:
    """Say how the next transaction on this connection begins. It holds for that one."""
    vars(connection)[_NEXT] = begin


def began(connection: sa.Connection) -> None:
    """Note that BEGIN was answered: from here on a lost connection may have lost work, and only we may commit."""
    vars(connection)[_BEGAN] = "work"


def is_ours(connection: sa.Connection) -> bool:
    """Whether the transaction of this connection is the library's own, and was begun."""
    return _BEGAN in vars(connection)


def end_next(backend: Backend, connection: sa.Connection) -> None:
    """Allow the COMMIT of the library's own transaction, if it is still open and whole. Asks the database nothing.

    Where it is not, COMMIT would succeed all the same, and confirm what was rolled back.
    """
    notes = vars(connection)
    if _BEGAN not in notes:
        if connection.closed:
            raise StatementFailed(_ENDED)
        return  # There was nothing to ask the database.
    if not (connection.in_transaction() and backend.is_in_transaction(connection)):
        raise StatementFailed(_ENDED)
    notes[_BEGAN] = "commit"


def on_commit(connection: sa.Connection) -> None:
    """Refuse a COMMIT of the library's own transaction that is not the library's."""
    if vars(connection).get(_BEGAN) == "work":
        raise StatementFailed(_ENDED)


def forget_begin(connection: sa.Connection) -> bool:
    """Forget both notes, and say whether BEGIN had been answered."""
    notes = vars(connection)
    notes.pop(_NEXT, None)
    return notes.pop(_BEGAN, None) is not None


def taken_begin(connection: sa.Connection) -> Begin | None:
    """What `begin_next` said, once; None for a transaction of the caller's own.

    Raises StatementFailed for a transaction that follows one of the library's before that was over.
    """
    notes = vars(connection)
    begin: Begin | None = notes.pop(_NEXT, None)
    if begin is None and _BEGAN in notes:
        raise StatementFailed(_ENDED)
    return begin


def is_autocommit(level: object) -> bool:
    """Whether an isolation level is AUTOCOMMIT, in whatever case it was written."""
    return level is not None and str(level).upper() == "AUTOCOMMIT"


def refuse_autocommit(what: str, options: Mapping[str, Any], dialect: Dialect | None = None) -> None:
    """Raise Misconfigured for an engine or connection at AUTOCOMMIT."""
    levels = (options.get("isolation_level"), getattr(dialect, "_on_connect_isolation_level", None))
    if any(map(is_autocommit, levels)):
        raise Misconfigured(f"the {what} is at AUTOCOMMIT, where nothing can be taken back; use its default level.")


class Backend(Protocol):
    """One database system. `name` is for people, `clock` the server's clock or None where this process has it.

    `confirming` stands in a SELECT that confirms what was stored before: its COMMIT then waits for as much as the first
    one did. `needs_preparing` tells whether a caller's transaction is only safe on an engine that we prepared,
    `composes` whether one statement can take arrays and change several tables, so that a verb is one statement,
    `one_writer` whether only one transaction at a time can write.
    """

    name: str
    clock: sa.ColumnElement[float] | None
    confirming: sa.ColumnElement[Any]
    needs_preparing: bool
    in_threads: bool
    composes: bool
    one_writer: bool

    def checked_url(self, url: sa.URL) -> sa.URL:
        """The URL with the driver named. Raises Misconfigured for another driver or an in-memory database."""
        ...

    def engine(self, url: sa.URL, *, create: bool, pool: Pool) -> sa.Engine:
        """A new engine, not connected."""
        ...

    def async_engine(self, url: sa.URL, *, pool: Pool) -> AsyncEngine:
        """A new engine for asyncio, not connected."""
        ...

    def check_engine(self, engine: sa.Engine) -> None:
        """Raise Misconfigured for an engine that recovery cannot work with."""
        ...

    def check_database(self, connection: sa.Connection) -> None:
        """Raise Misconfigured for a database that recovery cannot work with. Reads only."""
        ...

    def check_transaction(self, connection: sa.Connection) -> None:
        """Raise Misconfigured where the caller's open transaction is at another level than READ COMMITTED."""
        ...

    def on_connect(self, driver: Any, record: Any) -> None:
        """Set up a new connection."""
        ...

    def on_begin(self, connection: sa.Connection) -> None:
        """Send BEGIN."""
        ...

    def on_checkin(self, driver: Any, record: Any) -> None:
        """Leave a connection that goes back to its pool as the driver made it."""
        ...

    def on_close(self, driver: Any, record: Any) -> None:
        """Let go of what belongs to a connection that is about to be closed."""
        ...

    def ended(self, connection: sa.Connection) -> None:
        """A transaction of ours has ended, in whatever way; the connection may be invalid by now."""
        ...

    def has_lost_transaction(self, connection: sa.Connection) -> bool:
        """After an error: whether the database ended the transaction by itself. Asks nothing of it."""
        ...

    def on_error(self, context: ExceptionContext) -> None:
        """Look at an error before it is raised."""
        ...

    def is_in_transaction(self, connection: sa.Connection) -> bool:
        """Whether the driver's transaction is open and whole, whatever SQLAlchemy believes. Asks nothing of it."""
        ...

    def check_answer(self, connection: sa.Connection) -> None:
        """After COMMIT: raise CommitUnknown where the database added that it may not outlive this server."""
        ...

    def lock_to_write(self, connection: sa.Connection, table: sa.Table) -> None:
        """In a transaction of the caller's: be sure of the right to write before anything is read."""
        ...

    def insert_new(self, table: sa.Table, key: str) -> sa.Insert:
        """An INSERT that does nothing where a row with the same `key` is stored already."""
        ...

    def arrival(self, table: sa.Table) -> dict[str, Any]:
        """The value of the column `arrival` for an INSERT, empty where the database counts by itself."""
        ...

    def translate_driver(self, error: Exception, phase: Phase) -> RecoveryError:
        """The error of the contract for a driver's error."""
        ...

    def is_retryable(self, error: BaseException) -> bool:
        """Whether the whole transaction may be tried again: a deadlock or a serialization failure."""
        ...

    def has_lost_prepared(self, connection: sa.Connection, error: BaseException) -> bool:
        """Whether a statement was refused because its prepared form is gone; the connection then prepares no more."""
        ...


def original(error: BaseException) -> BaseException:
    """The driver's own error, where SQLAlchemy wrapped one."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def is_database_error(error: BaseException) -> bool:
    """Whether an error came from SQLAlchemy or a driver, and not from somebody's own code."""
    if isinstance(error, sa.exc.SQLAlchemyError):
        return True
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(modules & {"psycopg", "sqlite3", "pysqlite3", "aiosqlite", "psycopg_pool"})


def without_values(error: BaseException) -> None:
    """Take from an error what a logged traceback must not show, since it can be payloads: the error may be a cause.

    SQLAlchemy's text has the parameters. A server's has the row that broke a constraint in DETAIL, and can be told to
    add parameters in CONTEXT: its first sentence stays, and `diag` has the rest for whoever asks for it.
    """
    if isinstance(error, StatementError):
        error.hide_parameters = True
    driver = original(error)
    sentence = getattr(getattr(driver, "diag", None), "message_primary", None)
    if sentence is not None:
        driver.args = (sentence,)
        if driver is not error:
            error.args = (f"({type(driver).__module__}.{type(driver).__name__}) {sentence}",)


def translate(backend: Backend, error: Exception, phase: Phase) -> RecoveryError:
    """The error of the contract for one that SQLAlchemy or the driver raised. Its text is ours, its cause the other."""
    without_values(error)
    if isinstance(error, RecoveryError):
        return error
    if isinstance(error, PoolTimeout):
        return Busy("every connection of the pool was in use for longer than the bound; nothing was stored.")
    if isinstance(error, PendingRollbackError) and error.code == _LOST_BEFORE:
        return Unavailable("the connection was lost, and its transaction with it; roll back and begin again.")
    driver = original(error)
    if isinstance(driver, sa.exc.SQLAlchemyError) or not isinstance(driver, Exception):
        return StatementFailed()
    return backend.translate_driver(driver, phase)
