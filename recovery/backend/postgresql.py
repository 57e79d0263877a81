"""PostgreSQL through psycopg 3: many writers, row locks, the server's clock.

The library's own transactions begin with one message that carries the level and every bound. The settings die with
the transaction, so PgBouncer in transaction mode works; and they win over what a server or a role has set. Statements
are prepared only where nothing stands between (`prepared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine.interfaces import ExceptionContext

from recovery.backend import prepared
from recovery.backend.base import Begin, Phase, Pool, began, is_autocommit, is_ours, refuse_autocommit, taken_begin
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

CONNECT_SECONDS = 10
DRIVER = "postgresql+psycopg"

_UNREACHED = (
    "the database cannot be reached: is the server up, does it have this database, and are host, port, user and"
    " password right?"
)
_NO_RIGHT = (
    "the role lacks a right that this needs: recovery's tables want SELECT, INSERT, UPDATE and DELETE, their sequences"
    " USAGE, and the schema USAGE; recovery migrate also wants CREATE on the schema."
)
_NAMED: dict[str, type[RecoveryError]] = {
    "25006": ReadOnly,
    "42P01": SchemaMismatch,
    "42703": SchemaMismatch,
    "3F000": SchemaMismatch,
}
_RETRYABLE = frozenset({"40001", "40P01"})
_BUSY = _RETRYABLE | {"55P03", "57014"}
_IN_TRANSACTION = 2
"""libpq's PQTRANS_INTRANS: in a transaction that can go on."""

_WAIT = "SyncRepWaitForLSN"
"""The server's function that warns where somebody ended a COMMIT's wait for its standby."""
_CUT = "recovery: the wait for a standby was ended"
_HALF = "COMMIT took effect on this server, and somebody ended its wait for the standby; look before repeating it."

_GONE = frozenset({"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04"})


class PostgreSQL:
    """How recovery works with a PostgreSQL server."""

    name = "PostgreSQL"
    clock: sa.ColumnElement[float] | None = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double())

    # COMMIT waits for a standby only where something was written. On a standby itself nothing can be.
    confirming: sa.ColumnElement[Any] = sa.literal_column(
        "CASE WHEN current_setting('synchronous_standby_names') <> '' AND NOT pg_is_in_recovery()"
        " THEN CAST(pg_logical_emit_message(true, 'recovery', '') AS text) END",
        sa.Text(),
    )
    needs_preparing = False
    composes = True
    one_writer = False
    in_threads = False

    def checked_url(self, url: sa.URL) -> sa.URL:
        if url.drivername not in ("postgresql", DRIVER):
            raise Misconfigured("recovery speaks to PostgreSQL through psycopg 3: write postgresql://… in the URL.")
        password = url.query.get("password")
        if isinstance(password, str):  # libpq takes it there too, but only here does a repr hide it.
            url = url.difference_update_query(["password"]).set(password=password)
        return url.set(drivername=DRIVER)

    def engine(self, url: sa.URL, *, create: bool, pool: Pool) -> sa.Engine:
        with _DriverNeeded():
            return sa.create_engine(
                url, connect_args=_connect_args(url), pool_size=pool.size, pool_timeout=pool.busy_seconds
            )

    def async_engine(self, url: sa.URL, *, pool: Pool) -> AsyncEngine:
        from sqlalchemy.ext.asyncio import create_async_engine  # Needs the extra `async`.

        with _DriverNeeded():
            return create_async_engine(
                url, connect_args=_connect_args(url), pool_size=pool.size, pool_timeout=pool.busy_seconds
            )

    def check_engine(self, engine: sa.Engine) -> None:
        if engine.dialect.driver not in ("psycopg", "psycopg_async"):
            raise Misconfigured("recovery speaks to PostgreSQL through psycopg 3: postgresql+psycopg://…")
        refuse_autocommit("engine", engine.get_execution_options(), engine.dialect)

    def check_database(self, connection: sa.Connection) -> None:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            raise Misconfigured(f"the database is encoded in {encoding}; recovery needs UTF8.")

    def check_transaction(self, connection: sa.Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        # Possible on an engine that is not prepared: SAVEPOINT would have no transaction. In ours BEGIN was sent.
        if driver.autocommit and not is_ours(connection):
            raise Misconfigured("the connection has the driver's autocommit set; leave it at the default.")
        level = connection.exec_driver_sql("SHOW transaction_isolation").scalar()
        if level != "read committed":
            raise Misconfigured(f"the transaction is at {str(level).upper()}; recovery needs READ COMMITTED.")

    def on_connect(self, driver: Any, record: Any) -> None:
        if driver.autocommit:
            raise Misconfigured("the engine sets the driver's autocommit; leave it at the default.")
        raw = record.dbapi_connection if record.driver_connection is None else record.driver_connection
        raw.prepare_threshold = None
        _watch(raw, record.info)

    def on_begin(self, connection: sa.Connection) -> None:
        begin = taken_begin(connection)
        driver: Any = connection.connection.dbapi_connection
        if begin is None:
            prepared.leave_off(connection)
            # The caller's own: the driver begins by itself, at the level that the caller chose.
            if driver.autocommit and not is_autocommit(connection.get_execution_options().get("isolation_level")):
                driver.autocommit = False
            return
        connection.info.pop(_CUT, None)  # What was said of somebody else's COMMIT on this line.
        if not driver.autocommit:
            driver.autocommit = True  # Sends nothing: from here on BEGIN is ours to send.
        driver.cursor().execute(begin_text(begin))
        began(connection)
        prepared.use(connection, wanted=begin.prepared)

    def on_checkin(self, driver: Any, record: Any) -> None:
        # A raw connection from the caller's pool must be as the driver makes it.
        if driver is not None and driver.autocommit and not driver.closed:
            driver.autocommit = False

    def on_close(self, driver: Any, record: Any) -> None:
        """Nothing of ours is beside the connection."""

    def ended(self, connection: sa.Connection) -> None:
        """The server has dropped every lock."""

    def is_in_transaction(self, connection: sa.Connection) -> bool:
        # An error that was caught leaves it open and aborted, and COMMIT would then be a silent ROLLBACK.
        driver: Any = connection.connection.driver_connection
        return bool(driver.pgconn.transaction_status == _IN_TRANSACTION)

    def has_lost_transaction(self, connection: sa.Connection) -> bool:
        return False  # An error leaves it open and aborted; a lost connection is seen as lost.

    def on_error(self, context: ExceptionContext) -> None:
        """An aborted transaction takes no further statement; there is nothing to add."""

    def check_answer(self, connection: sa.Connection) -> None:
        if connection.info.pop(_CUT, False):
            raise CommitUnknown(_HALF)

    def lock_to_write(self, connection: sa.Connection, table: sa.Table) -> None:
        """Rows are locked one by one; there is nothing to ask for beforehand."""

    def insert_new(self, table: sa.Table, key: str) -> sa.Insert:
        return insert(table).on_conflict_do_nothing(index_elements=[key])

    def arrival(self, table: sa.Table) -> dict[str, Any]:
        return {}

    def translate_driver(self, error: Exception, phase: Phase) -> RecoveryError:
        state = getattr(error, "sqlstate", None)
        if state is None or phase == "connect":
            return _unanswered(error, phase)
        if state in _GONE or state.startswith("08"):
            return _lost("work" if state == "25P03" else phase)
        if state in _BUSY:
            return Busy()
        if state in _NAMED:
            return _NAMED[state]()
        if state == "42501":
            return Misconfigured(_NO_RIGHT)
        if state.startswith(("53", "58")):
            return Unavailable("the server is out of a resource (disk, memory or connections); nothing was stored.")
        return StatementFailed()

    def is_retryable(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in _RETRYABLE

    def has_lost_prepared(self, connection: sa.Connection, error: BaseException) -> bool:
        if not (prepared.is_used(connection) and prepared.is_out_of_step(error)):
            return False
        prepared.give_up(connection)
        return True


def _unanswered(error: Exception, phase: Phase) -> RecoveryError:
    """For what the driver says by itself, and for whatever keeps a connection from being made."""
    if str(error).startswith("invalid connection option"):
        return Misconfigured("the URL has an option that the driver does not know.")
    if phase == "connect":
        return Unavailable(_UNREACHED)
    return _lost(phase) if _is_operational(error) else StatementFailed()


def begin_text(begin: Begin) -> str:
    """BEGIN and every setting of the transaction, as one message."""
    bounds = begin.bounds
    access = "" if begin.write else " READ ONLY"
    planned = prepared.PLANNED if begin.planned else ""
    return (
        f"BEGIN ISOLATION LEVEL READ COMMITTED{access};"
        "SET LOCAL synchronous_commit = on;"
        "SET LOCAL jit = off;"
        "SET LOCAL client_min_messages = warning;"
        f"{planned}"
        f"SET LOCAL lock_timeout = {_milliseconds(bounds.busy_seconds)};"
        f"SET LOCAL statement_timeout = {_milliseconds(bounds.statement_seconds)};"
        f"SET LOCAL idle_in_transaction_session_timeout = {_milliseconds(bounds.idle_seconds)}"
    )


def _watch(raw: Any, info: dict[Any, Any]) -> None:
    def on_notice(notice: Any) -> None:
        if notice.source_function == _WAIT:
            info[_CUT] = True

    raw.add_notice_handler(on_notice)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _connect_args(url: sa.URL) -> dict[str, Any]:
    arguments: dict[str, Any] = {"prepare_threshold": None, "client_encoding": "utf8"}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = CONNECT_SECONDS
    return arguments


def _is_operational(error: Exception) -> bool:
    return type(error).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")


def _lost(phase: Phase) -> RecoveryError:
    if phase == "commit":
        return CommitUnknown()
    return Unavailable("the connection was lost before COMMIT was sent; nothing was stored.")


class _DriverNeeded:
    """Turn a missing driver into a sentence that says what to install."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModuleNotFoundError):
            raise Misconfigured("PostgreSQL needs an extra: pip install 'recovery[postgres]'") from error
