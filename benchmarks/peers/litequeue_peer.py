"""litequeue: a queue on SQLite; pop and done, and a transaction to put several in."""

import threading
import time
from typing import Any

from litequeue import LiteQueue  # type: ignore[import-not-found]  # it lives in the peer's own environment

from benchmarks.peers.driver import Options, Outcome, Progress, main, pragmas


def opened(options: Options) -> Any:
    """Open a queue; it sets synchronous=NORMAL itself, and `full` puts that back to FULL on its public connection."""
    queue = LiteQueue(options.path)
    if options.durability == "full":
        queue.conn.execute("PRAGMA synchronous = FULL")
    return queue


def enqueue(queue: Any, options: Options) -> None:
    """Put the tasks in, one by one or a batch in one transaction."""
    for chunk in options.chunks:
        if options.chunk == 1:
            queue.put(f'{{"number":{chunk.start}}}')
            continue
        with queue.transaction(mode="IMMEDIATE"):
            for number in chunk:
                queue.put(f'{{"number":{number}}}')


def work(options: Options, progress: Progress) -> None:
    """Take tasks until there is none."""
    queue = opened(options)
    while message := queue.pop():
        progress.tick(message.message_id)
        queue.done(message.message_id, claim_id=message.claim_id)
    queue.close()


def process(options: Options, queue: Any) -> float:
    """Drain the queue with threads that have a connection each."""
    progress = Progress(options.tasks)
    threads = [threading.Thread(target=work, args=(options, progress)) for _ in range(options.workers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if queue.done_count() != options.tasks:
        raise RuntimeError("some tasks are not done")
    return seconds


def drive(options: Options) -> Outcome:
    """One run."""
    queue = opened(options)
    began = time.perf_counter()
    enqueue(queue, options)
    seconds = time.perf_counter() - began
    if options.mode == "process":
        seconds = process(options, queue)
    who = "forced" if options.durability == "full" else "set by the peer"
    return Outcome(seconds, f"threads={options.workers}", pragmas(queue.conn, who))


if __name__ == "__main__":
    main("litequeue", drive)
