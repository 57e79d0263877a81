"""Migrated SQLite databases in memory, behind engines that the product takes, saved and restored as bytes.

Each has a fate for its commits: the process dies there, or the answer is lost, before or after the rows are stored.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import sqlalchemy as sa

from recovery import prepare_engine

PAGE_BYTES: Final = 512
"""Small pages make small states: the tables are many and their rows few."""


class Died(BaseException):
    """The process ends here. Nothing that catches errors may catch it."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens at one of a step's commits that wrote, counted from 1.

    `dies` ends the process there, `doubt` loses the answer on the way to a process that lives. `before` the rows are
    stored they are lost, `after` they stay.
    """

    kind: Literal["dies", "doubt"]
    place: Literal["before", "after"]
    commit: int = 1

    def __str__(self) -> str:
        what = "dies" if self.kind == "dies" else "loses the answer"
        return f"{what} {self.place} commit {self.commit}"


class Kept(sqlite3.Connection):
    """A connection that outlives its pool: a close loses what was not committed, as the end of a process does."""

    def close(self) -> None:
        """Lose the open transaction."""
        self.rollback()

    def end(self) -> None:
        """Close it after all."""
        super().close()


class Memory:
    """One database in memory, and the engine through which the product uses it.

    `file` is a migrated database: the product checks it when it opens the engine, and `move_in` then puts its copy in
    memory in its place.
    """

    def __init__(self, file: Path) -> None:
        self.driver = sqlite3.connect(":memory:", factory=Kept, check_same_thread=False)
        self.driver.deserialize(_copied(file))
        self.writes = 0
        self._file: Path | None = file
        self._changes = 0
        self._restored: tuple[bytes, int] | None = None
        self._fate: Fate | None = None
        url = sa.URL.create("sqlite+pysqlite", database=str(file))
        options = {"recovery_turns": False}  # One process, one thread: there is nobody to stand in line with.
        pool: dict[str, Any] = {"poolclass": sa.pool.QueuePool, "pool_size": 1, "max_overflow": 0}
        self.engine = prepare_engine(sa.create_engine(url, creator=self._connect, execution_options=options, **pool))
        dialect: Any = self.engine.dialect
        self._real_commit = dialect.do_commit
        dialect.do_commit = self._commit

    def move_in(self) -> None:
        """From now on the product works in memory."""
        self._file = None
        self.engine.dispose()

    def save(self) -> bytes:
        """The whole database."""
        return self.driver.serialize()

    def restore(self, saved: bytes) -> None:
        """Put the database back as it was, where it is not."""
        if self._restored is None or self._restored[0] is not saved or self._restored[1] != self.driver.total_changes:
            self.driver.deserialize(saved)
            self._restored = saved, self.driver.total_changes

    @property
    def is_changed(self) -> bool:
        """Whether a statement has touched a row since `restore`, stored or taken back."""
        return self._restored is None or self._restored[1] != self.driver.total_changes

    def arm(self, fate: Fate | None) -> None:
        """Begin a step: count its writing commits in `writes`, and let one of them go wrong."""
        self._fate, self.writes, self._changes = fate, 0, self.driver.total_changes

    def close(self) -> None:
        """Give everything back."""
        self.engine.dispose()
        self.driver.end()

    def _connect(self) -> sqlite3.Connection:
        return self.driver if self._file is None else sqlite3.connect(self._file, check_same_thread=False)

    def _commit(self, connection: Any) -> None:
        changes, self._changes = self._changes, self.driver.total_changes
        self.writes += self._changes != changes
        fate = self._fate
        if fate is None or self._changes == changes or fate.commit != self.writes:
            self._real_commit(connection)
            return
        self._fate = None
        if fate.place == "after":
            self._real_commit(connection)
        raise Died if fate.kind == "dies" else _unsure()


def _unsure() -> sqlite3.OperationalError:
    """What SQLite says where the rows may have reached the disk before it failed."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


@cache
def _copied(file: Path) -> bytes:
    """The same database in small pages and without WAL, which memory has not."""
    copy = file.with_suffix(".copy")
    copy.unlink(missing_ok=True)
    driver = sqlite3.connect(file, isolation_level=None)
    driver.execute("VACUUM INTO ?", (str(copy),))
    driver.close()
    driver = sqlite3.connect(copy, isolation_level=None)
    driver.execute("PRAGMA journal_mode = DELETE")
    driver.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    driver.execute("VACUUM")
    driver.close()
    return copy.read_bytes()
