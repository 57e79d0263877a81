"""The only place that begins, commits, retries, and names what went wrong.

A verb is a function of a Connection. It runs here in one of three ways: in a transaction of its own on a pooled
connection (`Transactions`), the same on one connection that a session holds (`HeldTransactions`), or in a SAVEPOINT of
the caller's transaction (`Savepoints`). Every transaction of ours ends through the dialect's `do_commit`.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

import sqlalchemy as sa

from recovery import backend
from recovery.backend import Begin, Bounds, Phase
from recovery.errors import Busy, CommitUnknown, Fenced, Misconfigured, RecoveryError, Unavailable

R = TypeVar("R")
Work = Callable[[sa.Connection], R]

TRIES_MAX: Final = 5
PAUSE_SECONDS: Final = 0.02
PASSED_ON: Final = (Fenced, ValueError)
"""What a repeat after a lost COMMIT may answer: these speak of what is stored. Any other error leaves the doubt."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a verb does to the database: whether it writes, and whether a blind repeat of it is harmless.

    `foreign` says that a caller's code may run in its transaction.
    """

    write: bool
    repeat: bool
    foreign: bool = False


READ: Final = Kind(write=False, repeat=False)
WRITE: Final = Kind(write=True, repeat=False)
REPEATABLE: Final = Kind(write=True, repeat=True)
EFFECT: Final = Kind(write=True, repeat=True, foreign=True)


class Runner(Protocol):
    """Runs a verb's work on a connection, in a transaction."""

    def run(self, work: Work[R], kind: Kind) -> R:
        """Do the work, durably where the transaction is ours, and return its answer."""
        ...


class _TryAgain(Exception):
    """A deadlock or a serialization failure: the database rolled back, and asks to try again."""


class _Unprepared(_TryAgain):
    """A prepared statement was gone. Every connection of the pool may have lost its own, so try without any."""


class _NotBegun(Exception):
    """The connection was dead before anything was sent on it; another one may be alive."""


def pause(seconds: float) -> None:
    """Wait in this thread, by whatever `time.sleep` is by then: a process whose clock is put wrong has another one."""
    time.sleep(seconds)


class Transactions:
    """The library's own transactions, each on a connection from the engine's pool. Safe between threads and forks."""

    def __init__(self, engine: sa.Engine, bounds: Bounds, sleep: Callable[[float], object] = pause) -> None:
        self.engine = engine
        self._backend = backend.of(engine)
        self._bounds = bounds
        self._sleep = sleep
        self.closed = False
        leave_at_fork(self)

    def run(self, work: Work[R], kind: Kind) -> R:
        """Do the work in one transaction, or raise an error of the contract.

        Deadlocks and serialization failures are tried again, up to five times and the busy bound in all. After a
        COMMIT whose answer was lost, a verb that may be repeated is; the doubt stays where that tells nothing.
        """
        self._check_open()
        doubt: CommitUnknown | None = None
        prepared = True
        until = time.monotonic() + self._bounds.busy_seconds
        for attempt in range(1, TRIES_MAX + 1):
            try:
                return self._once(work, kind, prepared=prepared)
            except (_TryAgain, _NotBegun) as error:
                prepared = prepared and not isinstance(error, _Unprepared)
                if attempt == TRIES_MAX or time.monotonic() >= until:
                    raise (doubt or _given_up(error)) from error.__cause__
            except CommitUnknown as error:
                doubt = doubt or error
                if not kind.repeat or attempt == TRIES_MAX:
                    raise doubt from doubt.__cause__
            except RecoveryError as error:
                if doubt is None or isinstance(error, PASSED_ON):
                    raise
                raise doubt from error
            self._sleep(random.uniform(0, PAUSE_SECONDS * 2**attempt))
        raise AssertionError("unreachable")

    def hold(self) -> HeldTransactions:
        """The same on one held connection, for one thread."""
        self._check_open()
        return HeldTransactions(self.engine, self._bounds, self._sleep)

    def close(self) -> None:
        """Refuse every later call; a pool's connections are closed with its engine."""
        self.closed = True

    def leave_parent(self) -> None:
        """In a child process: let go of the parent's connections, untouched."""
        _abandoned.append(self.engine.pool)
        self.engine.dispose(close=False)

    def _check_open(self) -> None:
        if self.closed:
            raise Misconfigured("it is closed; open another one.")

    def _once(self, work: Work[R], kind: Kind, *, prepared: bool) -> R:
        connection = self._taken()
        phase: Phase = "work"
        try:
            planned = kind.write and not kind.foreign
            backend.begin_next(connection, Begin(kind.write, self._bounds, planned, planned and prepared))
            answer = work(connection)
            _quietly_leave_line(connection)
            backend.end_next(self._backend, connection)
            phase = "commit"
            connection.commit()
            self._backend.check_answer(connection)
            backend.forget_begin(connection)
        except BaseException as error:  # noqa: BLE001 - raised again, after the connection was made clean
            raise self._failure(connection, error, phase, kind) from (
                error if backend.is_database_error(error) else error.__cause__
            )
        finally:
            self._backend.ended(connection)
            self._give_back(connection)
        return answer

    def _failure(self, connection: sa.Connection, error: BaseException, phase: Phase, kind: Kind) -> BaseException:
        """Make the connection clean, and return what to raise."""
        _quietly_leave_line(connection)
        begun = _forget(connection)
        if not isinstance(error, Exception):
            connection.invalidate()  # Interrupted in the middle of anything: nobody knows what the line still holds.
            return error
        if not backend.is_database_error(error):
            _roll_back(connection, phase)
            return error
        if (again := self._again(connection, error)) is not None:
            backend.without_values(error)
            _roll_back(connection, phase)
            return again
        # A reading that was not answered leaves nothing in doubt.
        failure = backend.translate(self._backend, error, phase if kind.write else "work")
        if isinstance(failure, Unavailable | CommitUnknown):
            if begun or isinstance(failure, CommitUnknown):
                connection.invalidate()
                return failure
            # What killed this one while it lay in the pool has most likely killed the others of its age.
            self.engine.pool._invalidate(connection.connection, error)  # noqa: SLF001 - as SQLAlchemy itself does
            connection.invalidate()
            return _NotBegun(failure)
        _roll_back(connection, phase)
        return failure

    def _again(self, connection: sa.Connection, error: Exception) -> _TryAgain | None:
        """How to try again what the database rolled back; None where that would not help."""
        driver = backend.original(error)
        if self._backend.is_retryable(driver):
            return _TryAgain()
        return _Unprepared() if self._backend.has_lost_prepared(connection, driver) else None

    def _taken(self) -> sa.Connection:
        try:
            return self.engine.connect()
        except Exception as error:
            if not backend.is_database_error(error):
                raise
            raise backend.translate(self._backend, error, "connect") from error

    def _give_back(self, connection: sa.Connection) -> None:
        connection.close()


class HeldTransactions(Transactions):
    """The library's own transactions on one connection, held until `close`. For one thread at a time."""

    def __init__(self, engine: sa.Engine, bounds: Bounds, sleep: Callable[[float], object] = pause) -> None:
        super().__init__(engine, bounds, sleep)
        self._held: sa.Connection | None = None
        self._in_use = threading.Lock()

    def run(self, work: Work[R], kind: Kind) -> R:
        """The same, one at a time: raises Misconfigured inside another verb of this session, or beside it."""
        in_use = self._entered()
        try:
            return super().run(work, kind)
        finally:
            in_use.release()

    def connection(self) -> sa.Connection:
        """The held connection, outside any transaction of ours."""
        self._check_open()
        if self._held is not None and (self._held.invalidated or self._held.closed):
            self._held.close()
            self._held = None
        if self._held is None:
            self._held = super()._taken()
        return self._held

    def _taken(self) -> sa.Connection:
        connection = self.connection()
        if connection.in_transaction():
            raise Misconfigured("the session's connection is in your transaction; use queue.on(connection) there.")
        options = connection.get_execution_options()
        if "isolation_level" in options:
            backend.refuse_autocommit("connection", options)
        return connection

    def _give_back(self, connection: sa.Connection) -> None:
        """It stays held."""

    def close(self) -> None:
        """Give the connection back to its pool, and refuse every later call."""
        in_use = self._entered()
        try:
            super().close()
            held, self._held = self._held, None
            if held is not None:
                held.close()
        finally:
            in_use.release()

    def leave_parent(self) -> None:
        _abandoned.append(self._held)
        self._held = None
        self._in_use = threading.Lock()
        super().leave_parent()

    def _entered(self) -> threading.Lock:
        in_use = self._in_use
        if not in_use.acquire(blocking=False):
            raise Misconfigured("the session is in the middle of a verb; another thread needs a session of its own.")
        return in_use


class Savepoints:
    """Verbs inside the caller's own transaction, each in a SAVEPOINT. What they answer is durable after its COMMIT."""

    def __init__(self, connection: sa.Connection, table: sa.Table) -> None:
        check_caller(connection)
        self._connection = connection
        self._backend = backend.of(connection)
        self._table = table
        self._checked: object = None

    def run(self, work: Work[R], kind: Kind) -> R:
        """Do the work in a SAVEPOINT; an error takes back this verb and nothing else. No retry, no SET."""
        check_caller(self._connection)
        try:
            self._check_level()
            with self._connection.begin_nested():
                return self._in_savepoint(work, kind)
        except Exception as error:
            if not backend.is_database_error(error):
                raise
            raise self._failure(error) from error

    def _in_savepoint(self, work: Work[R], kind: Kind) -> R:
        try:
            if kind.write:
                self._backend.lock_to_write(self._connection, self._table)
            return work(self._connection)
        except Exception as error:
            if backend.is_database_error(error) and not self._connection.invalidated:
                self._leave_lost()
            raise
        finally:
            _quietly_leave_line(self._connection)

    def _leave_lost(self) -> None:
        # A full disk takes the whole transaction back, savepoints and all, and what came next would commit by itself.
        if self._backend.has_lost_transaction(self._connection):
            self._connection.invalidate()

    def check_level(self) -> None:
        """Raise Misconfigured for a level other than READ COMMITTED. Asks the database, once a transaction."""
        try:
            self._check_level()
        except Exception as error:
            if not backend.is_database_error(error):
                raise
            raise self._failure(error) from error

    def _check_level(self) -> None:
        transaction = self._connection.get_transaction()
        if self._checked is not transaction:
            self._backend.check_transaction(self._connection)
            self._checked = transaction

    def _failure(self, error: Exception) -> RecoveryError:
        if self._backend.is_retryable(backend.original(error)):
            backend.without_values(error)
            return Busy("the database asks for your whole transaction to be tried again (deadlock or serialization).")
        return backend.translate(self._backend, error, "work")


def check_caller(connection: sa.Connection) -> None:
    """Raise Misconfigured for a connection that a verb cannot join. Asks the database nothing."""
    if not isinstance(connection, sa.Connection):
        raise Misconfigured("on() wants a SQLAlchemy Connection.")
    found = backend.of(connection)
    found.check_engine(connection.engine)
    backend.refuse_autocommit("connection", connection.get_execution_options())
    if not backend.is_prepared(connection.engine) and found.needs_preparing:
        raise Misconfigured("give the engine to prepare_engine first: without it a SAVEPOINT here is no savepoint.")
    if not connection.in_transaction():
        raise Misconfigured("begin a transaction on the connection first; the verbs live or die with it.")


class Inherited(Protocol):
    """Something that a child process gets from its parent and must not use."""

    def leave_parent(self) -> None: ...


_abandoned: list[Any] = []
"""What a child process found after a fork. Never closed: closing would speak on the parent's lines."""

_inherited: WeakSet[Inherited] = WeakSet()


def leave_at_fork(one: Inherited) -> None:
    """Call `one.leave_parent()` in every child process, before anything else runs there."""
    _inherited.add(one)


def _leave_parent() -> None:
    for one in list(_inherited):
        one.leave_parent()


os.register_at_fork(after_in_child=_leave_parent)


def _quietly_leave_line(connection: sa.Connection) -> None:
    try:
        backend.leave_line(connection)
    except Exception:  # noqa: BLE001 - of a connection that is broken; the error that broke it is the one to raise
        return


def _forget(connection: sa.Connection) -> bool:
    if connection.invalidated or connection.closed:
        return True
    return backend.forget_begin(connection)


def _roll_back(connection: sa.Connection, phase: Phase) -> None:
    if phase == "commit":
        # A COMMIT that raised may have left the driver's transaction open behind SQLAlchemy's back.
        connection.invalidate()
        return
    try:
        connection.rollback()
    except Exception:  # noqa: BLE001 - whatever it is, the connection is not fit for the pool
        connection.invalidate()


def _given_up(error: Exception) -> RecoveryError:
    if isinstance(error, _NotBegun):
        failure: RecoveryError = error.args[0]
        return failure
    return Busy("deadlocks or serialization failures, five times over; nothing was stored.")
