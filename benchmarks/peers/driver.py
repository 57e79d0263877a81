"""What every driver shares: its command line, its clock, and the one JSON line that it prints.

Standard library only, since a driver runs in its peer's environment; `counting` and `setting` want psycopg 3 there.
"""

import argparse
import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

FILL = 100
"""How many tasks at once are put in before a run that only times their processing."""


@dataclass(frozen=True)
class Options:
    """One run: `tasks` no-ops, put in `batch` at a time, or processed by `workers` fetching `batch` at a time."""

    url: str
    tasks: int
    workers: int
    batch: int
    mode: str
    durability: str

    @property
    def chunk(self) -> int:
        return self.batch if self.mode == "enqueue" else FILL

    @property
    def chunks(self) -> Iterator[range]:
        for first in range(0, self.tasks, self.chunk):
            yield range(first, min(first + self.chunk, self.tasks))

    @property
    def backend(self) -> str:
        return self.url.split(":", 1)[0]

    @property
    def path(self) -> str:
        return self.url.removeprefix("sqlite:///")


@dataclass(frozen=True)
class Outcome:
    """What one run took, and under which settings and durability."""

    seconds: float
    settings: str
    durability: str


class Progress:
    """Counts the different tasks that ran; its clock starts with the first of them, so that start-up is not counted."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.seen: set[Any] = set()
        self.began = 0.0
        self._lock = threading.Lock()

    def tick(self, task: Any) -> None:
        with self._lock:
            self.began = self.began or time.perf_counter()
            self.seen.add(task)

    def completed(self, left: Callable[[], int]) -> float:
        """Seconds from the first task until the database says that none is left."""
        while len(self.seen) < self.tasks or left():
            time.sleep(0.005)
        return time.perf_counter() - self.began


def counting(url: str, statement: str) -> Callable[[], int]:
    """Ask PostgreSQL, over a connection of its own, how many tasks are not completed."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)

    def left() -> int:
        row = connection.execute(statement.encode()).fetchone()
        return int(row[0]) if row else 0

    return left


def setting(url: str, note: str = "left alone") -> str:
    """What the server says that a commit of this role waits for."""
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute("SHOW synchronous_commit").fetchone()
    return f"synchronous_commit={row[0] if row else '?'} ({note})"


def pragmas(connection: Any, who: str) -> str:
    """What SQLite says on the peer's own connection, and who chose it."""
    levels = ("OFF", "NORMAL", "FULL", "EXTRA")
    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    level = levels[connection.execute("PRAGMA synchronous").fetchone()[0]]
    return f"{journal}, synchronous={level} ({who}); SQLite {sqlite3.sqlite_version}"


def parsed() -> Options:
    """The command line that all drivers have in common."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--mode", choices=["enqueue", "process"], required=True)
    parser.add_argument("--durability", choices=["peer", "full"], default="peer")
    return Options(**vars(parser.parse_args()))


def main(distribution: str, drive: Callable[[Options], Outcome | Coroutine[Any, Any, Outcome]]) -> None:
    """Do one run and print what it took."""
    options = parsed()
    driven = drive(options)
    outcome = driven if isinstance(driven, Outcome) else asyncio.run(driven)
    answer = {
        "peer": distribution,
        "version": version(distribution),
        "backend": options.backend,
        "mode": options.mode,
        "tasks": options.tasks,
        "seconds": outcome.seconds,
        "tasks_per_second": options.tasks / outcome.seconds,
        "settings": outcome.settings,
        "durability": outcome.durability,
    }
    print(json.dumps(answer), flush=True)
