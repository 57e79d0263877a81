"""Upgrades that are cut off at a statement, and what must be true of the database afterwards."""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa

from recovery import Queue, RecoveryError, SchemaMismatch, migrate
from recovery.migrate import ladder
from tests.upgrade.catalogs import Rows, seen
from tests.upgrade.statements import COMMIT, Watch, watched

FULL: Final = os.environ.get("RECOVERY_UPGRADES") == "full"
"""Every point, where somebody asks for that; else every ninth, and those around COMMIT."""
STRIDE: Final = 9
PRIVATE: Final = 0o600
BESIDE: Final = ("-wal", "-shm")
"""What SQLite may leave beside a file whose process was killed."""
PRELOADED: Final = ("recovery.migrate", "alembic.command", "sqlalchemy.dialects.postgresql.psycopg", __name__)


@dataclass(frozen=True)
class State:
    """A database as it is: the words of its catalog, and its rows."""

    catalog: list[tuple[Any, ...]]
    rows: Rows


class Upgrade:
    """A way up the ladder from databases that `make` makes, its two whole states, and the statements of the way."""

    def __init__(self, make: Callable[[], str]) -> None:
        self.make = make
        url = make()
        self.start = state(url)
        with watched(Watch()) as watch:
            migrate(url)
        self.head = state(url)
        self.sent = tuple(watch.sent)

    def points(self, stride: int = 1 if FULL else STRIDE) -> list[int]:
        """The points at which to cut, in order; both sides of the COMMIT are always among them."""
        return sorted({*range(0, 2 * len(self.sent), stride), 2 * self.commit, 2 * self.commit + 1})

    @property
    def commit(self) -> int:
        """The number of the COMMIT that makes it all durable."""
        return self.sent.index(COMMIT)

    def wrongs(self, url: str, point: int) -> list[str]:
        """What is wrong with a database whose upgrade was cut at a point, and after another one was let through."""
        wanted = self.head if point > 2 * self.commit else self.start
        found = [] if state(url) == wanted else ["it is neither as it was nor upgraded, or not the one that is due"]
        found += [*opening(url, ready=wanted is self.head), *damages(url), *side_files(url, BESIDE)]
        try:
            migrate(url)
        except RecoveryError as error:
            return [*found, f"it cannot be upgraded any more: {type(error).__name__}: {error}"]
        found += [] if state(url) == self.head else ["after another upgrade it is not what an undisturbed one makes"]
        return [*found, *opening(url, ready=True), *damages(url), *side_files(url, ())]


def state(url: str) -> State:
    """A database as it is now."""
    with seen(url) as look:
        return State(look.catalog(), look.rows())


def opening(url: str, *, ready: bool) -> list[str]:
    """What is wrong with what a queue says when it is opened: it opens, or it says what to run."""
    try:
        Queue.open(url).close()
    except SchemaMismatch as error:
        if ready:
            return ["it is upgraded and does not open"]
        return [] if "recovery migrate" in str(error) else [f"it does not say what to run: {error}"]
    return [] if ready else ["it is not upgraded and opens"]


def damages(url: str) -> list[str]:
    """What the database itself finds wrong."""
    with seen(url) as look:
        return look.damages()


def side_files(url: str, allowed: Iterable[str]) -> list[str]:
    """What lies beside a SQLite file and should not, and what others could read."""
    name = sa.make_url(url).database
    if not url.startswith("sqlite") or name is None:
        return []
    file = Path(name)
    there = {path: stat.S_IMODE(path.stat().st_mode) for path in file.parent.glob(f"{file.name}*")}
    known = {file.name, *(f"{file.name}{ending}" for ending in (*allowed, "-turns"))}
    left = [f"{path.name} was left" for path in there if path.name not in known]
    return left + [f"{path.name} has mode {mode:o}" for path, mode in there.items() if mode != PRIVATE]


@functools.cache
def forks() -> ForkServerContext:
    """Processes that come with everything loaded, since most of a short life is importing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def killed_at(url: str, point: int, steps: Path | None = None) -> None:
    """Upgrade a database in a process of its own, which is killed at a point. `steps` is another ladder."""
    process = forks().Process(target=_die, args=(url, point, steps))
    process.start()
    process.join()
    code = process.exitcode
    process.close()
    assert -signal.SIGKILL == code, f"point {point}: the process ended with {code}"


def _die(url: str, point: int, steps: Path | None) -> None:
    if steps is not None:
        vars(sys.modules["recovery.migrate"])["ladder"] = lambda: steps

    def act(reached: int) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    with watched(Watch(act)):
        migrate(url)


STEP: Final = "versions/0002_named_queues.py"
"""The ladder's step that the upgrades here are about."""


def changed_ladder(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """A copy of the ladder in which one file was changed in these places."""
    steps = folder / "ladder"
    shutil.copytree(ladder(), steps, ignore=shutil.ignore_patterns("__pycache__"))
    text = (steps / name).read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (steps / name).write_text(text)
    return steps


def climb_instead(monkeypatch: pytest.MonkeyPatch, steps: Path) -> None:
    """From now on `migrate` climbs another ladder."""
    monkeypatch.setattr(sys.modules["recovery.migrate"], "ladder", lambda: steps)
