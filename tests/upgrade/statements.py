"""Every statement that a process sends to a database, told just before it is sent and just after it was answered.

It is the drivers that are watched, and not SQLAlchemy's events: those do not see what goes straight to the driver, nor
COMMIT. A point is a number: `2 * n` is before the n-th statement (from 0), `2 * n + 1` after it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar
from unittest import mock

import psycopg
from psycopg.pq import TransactionStatus

R = TypeVar("R")
COMMIT: Final = "COMMIT"


class Watch:
    """What was sent so far, in order, as text. `act` is called with each point."""

    def __init__(self, act: Callable[[int], object] = lambda point: None) -> None:
        self.sent: list[str] = []
        self._act = act
        self._is_acting = False

    def around(self, said: object, send: Callable[[], R]) -> R:
        """Send one statement. What `act` sends itself is not watched."""
        if self._is_acting:
            return send()
        number = len(self.sent)
        self.sent.append(str(said))
        self._do(2 * number)
        answer = send()
        self._do(2 * number + 1)
        return answer

    def _do(self, point: int) -> None:
        self._is_acting = True
        try:
            self._act(point)
        finally:
            self._is_acting = False


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """While this lasts, every connection of either driver that is used in this process is watched."""
    with contextlib.ExitStack() as patches:
        connect = sqlite3.connect

        def watched_connect(*args: Any, **kwargs: Any) -> Any:
            return connect(*args, **kwargs, factory=_file(watch))

        for module in (sqlite3, sqlite3.dbapi2):
            patches.enter_context(mock.patch.object(module, "connect", watched_connect))
        patches.enter_context(mock.patch.object(psycopg.Cursor, "execute", _execute(watch)))
        for name in ("commit", "rollback"):
            patches.enter_context(mock.patch.object(psycopg.Connection, name, _end(watch, name)))
        yield watch


def _file(watch: Watch) -> type[sqlite3.Connection]:
    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *args: Any) -> Any:
            return watch.around(sql, lambda: super(Cursor, self).execute(sql, *args))

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> Any:
            return self.cursor().execute(sql, *args)

        def cursor(self, *_args: Any) -> Any:
            return super().cursor(Cursor)

        def commit(self) -> None:
            if self.in_transaction:
                watch.around(COMMIT, super().commit)

        def rollback(self) -> None:
            if self.in_transaction:
                watch.around("ROLLBACK", super().rollback)

    return Connection


def _execute(watch: Watch) -> Callable[..., Any]:
    execute: Any = psycopg.Cursor.execute

    def watched_execute(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        return watch.around(query, lambda: execute(self, query, *args, **kwargs))

    return watched_execute


def _end(watch: Watch, name: str) -> Callable[[Any], None]:
    end: Any = getattr(psycopg.Connection, name)

    def watched_end(self: Any) -> None:
        if self.info.transaction_status is TransactionStatus.IDLE:
            end(self)
        else:
            watch.around(name.upper(), lambda: end(self))

    return watched_end
