"""Commits that go wrong, on either backend: the process dies there, or the answer is lost on the way back."""

from __future__ import annotations

import sqlite3
from typing import Any

import sqlalchemy as sa

from tests.worlds.memory import Died, Fate


class Commits:
    """All commits of one engine, one of which may be told to go wrong."""

    def __init__(self, engine: sa.Engine) -> None:
        dialect: Any = engine.dialect
        self._dialect, self._real = dialect, dialect.do_commit
        dialect.do_commit = self._commit
        self._fate: Fate | None = None
        self._seen = 0

    def arm(self, fate: Fate | None) -> None:
        """From now on count commits, and let the one that the fate names go wrong."""
        self._fate, self._seen = fate, 0

    def disarm(self) -> bool:
        """Let no commit go wrong any more; whether one did."""
        met, self._fate = self._fate is None, None
        return met

    def _commit(self, connection: Any) -> None:
        self._seen += 1
        fate = self._fate
        if fate is None or fate.commit != self._seen:
            self._real(connection)
            return
        self._fate = None
        # A process that dies before its commit loses the transaction when the server sees the line end. Here that
        # is at once, so that the next step finds the same locks whenever it is taken.
        (self._dialect.do_rollback if fate.place == "before" else self._real)(connection)
        raise Died if fate.kind == "dies" else self._unsure()

    def _unsure(self) -> Exception:
        error: Exception = self._dialect.dbapi.OperationalError("the line broke")
        vars(error)["sqlite_errorcode"] = sqlite3.SQLITE_IOERR
        return error
