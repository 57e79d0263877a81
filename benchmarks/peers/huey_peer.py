"""huey: tasks on SQLite (SqliteHuey); fetching a task deletes it."""

import threading
import time
from typing import Any

from huey import SqliteHuey  # type: ignore[import-not-found]  # it lives in the peer's own environment

from benchmarks.peers.driver import Options, Outcome, Progress, main, pragmas


def process(huey: Any, options: Options, progress: Progress) -> float:
    """Drain the queue with the peer's own consumer, its workers as threads."""
    consumer = huey.create_consumer(
        workers=options.workers, worker_type="thread", periodic=False, initial_delay=0.005, max_delay=0.01
    )
    consumer.start()
    seconds = progress.completed(lambda: len(huey))
    consumer.stop(graceful=True)
    return seconds


def drive(options: Options) -> Outcome:
    """One run."""
    forced = options.durability == "full"
    huey = SqliteHuey(filename=options.path, **({"fsync": True} if forced else {}))
    progress = Progress(options.tasks)

    def noop(number: int) -> None:
        progress.tick(number)

    task = huey.task()(noop)
    began = time.perf_counter()
    for number in range(options.tasks):
        task(number)
    seconds = time.perf_counter() - began
    if options.mode == "process":
        seconds = process(huey, options, progress)
    who = "fsync=True" if forced else "SQLite's default, left alone"
    return Outcome(seconds, f"threads={options.workers}", pragmas(huey.storage.conn, who))


if __name__ == "__main__":
    threading.excepthook = lambda _hook: None  # a consumer's thread may find the file closed at the end
    main("huey", drive)
