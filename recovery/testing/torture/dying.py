"""What an actor does to its own commits: it ends before or after one of them, or loses the answer to it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

import sqlalchemy as sa

from recovery.testing.torture.plan import Doom, Plan

ENDED: Final = {"before": 80, "after": 81}
"""How a process ends that met its doom."""
FSYNC_FAILED: Final = 10 | (4 << 8)
"""SQLITE_IOERR_FSYNC: what is committed may be on disk or not, and SQLite says so."""


SHARE_MAX: Final = 0.125
"""Of all answers no more than that are lost: work has to go on."""


class Commits:
    """Stands around every COMMIT of an engine. `doing` tells the verb at hand."""

    def __init__(
        self, plan: Plan, row: int, chance: random.Random, doom: Doom | None, doing: Callable[[], str]
    ) -> None:
        self._plan = plan
        self._row = row
        self._chance = chance
        self._doom = doom
        self._left = doom.countdown if doom else 0
        self._doing = doing

    def watch(self, engine: sa.Engine) -> None:
        """From now on, every commit of this engine goes through here."""
        dialect: Any = engine.dialect
        real = dialect.do_commit

        def do_commit(connection: Any) -> None:
            doomed = self._is_doomed()
            if doomed == "before":
                die(doomed)
            real(connection)
            self._plan.tally.add(self._row, "commits")
            if doomed == "after":
                die(doomed)
            if self._is_lost():
                self._plan.tally.add(self._row, "cuts")
                lose(engine, connection)

        dialect.do_commit = do_commit

    def _is_lost(self) -> bool:
        """As many in a second as asked for, at whatever rate all actors commit."""
        if self._plan.tally.calm or not self._plan.cuts_by_actors:
            return False
        commits_per_second = self._plan.tally.total("commits") / max(time.time() - self._plan.began, 1.0)
        return self._chance.random() < min(SHARE_MAX, self._plan.cuts_by_actors / max(commits_per_second, 1.0))

    def _is_doomed(self) -> str | None:
        if self._doom is None or self._plan.tally.calm or self._doing() != self._doom.verb:
            return None
        self._left -= 1
        return self._doom.place if self._left == 0 else None


def die(place: str) -> NoReturn:
    """End at once: no `finally`, no goodbye to the server."""
    os._exit(ENDED[place])


def lose(engine: sa.Engine, connection: Any) -> NoReturn:
    """Raise what the driver raises when nobody can say whether the COMMIT took effect. It did."""
    module: Any = engine.dialect.loaded_dbapi
    error = module.OperationalError("the answer to COMMIT was lost")
    if engine.dialect.name == "sqlite":
        error.sqlite_errorcode = FSYNC_FAILED
    else:
        connection.dbapi_connection.close()
    raise error
