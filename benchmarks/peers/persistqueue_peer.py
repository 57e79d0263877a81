"""persist-queue: SQLiteAckQueue, a get and then an ack; `persistqueue_plain_peer` is its SQLiteQueue."""

import sqlite3
import time
from pathlib import Path
from typing import Any

from persistqueue import SQLiteAckQueue  # type: ignore[import-not-found]  # it lives in the peer's own environment

from benchmarks.peers.driver import Options, Outcome, main, pragmas


def process(queue: Any, tasks: int) -> float:
    """Drain the queue in one thread: its one connection stands behind a lock, and more threads only wait there."""
    began = time.perf_counter()
    for _ in range(tasks):
        item = queue.get(block=False, raw=True)
        if isinstance(queue, SQLiteAckQueue):
            queue.ack(id=item["pqid"])
    return time.perf_counter() - began


def drive(options: Options, kind: Any = SQLiteAckQueue) -> Outcome:
    """One run."""
    folder = Path(options.path).with_suffix(".folder")
    folder.mkdir()
    queue = kind(str(folder))
    began = time.perf_counter()
    for number in range(options.tasks):
        queue.put({"number": number})
    seconds = time.perf_counter() - began
    if options.mode == "process":
        seconds = process(queue, options.tasks)
    # It offers no connection of its own; another one to the same file has the same defaults.
    durability = pragmas(sqlite3.connect(folder / "data.db"), "SQLite's default, left alone")
    return Outcome(seconds, kind.__name__, durability)


if __name__ == "__main__":
    main("persist-queue", drive)
