"""procrastinate: jobs on PostgreSQL for asyncio, fetched one by one."""

import asyncio
import time
from typing import Any

import procrastinate  # type: ignore[import-not-found]  # it lives in the peer's own environment

from benchmarks.peers.driver import Options, Outcome, Progress, counting, main, setting

LEFT = "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'"


async def enqueue(task: Any, options: Options) -> None:
    """Put the tasks in, in batches or one by one."""
    for chunk in options.chunks:
        if options.chunk == 1:
            await task.defer_async(number=chunk.start)
        else:
            await task.batch_defer_async(*({"number": number} for number in chunk))


async def process(app: Any, options: Options, progress: Progress) -> float:
    """Drain the queue with the peer's own worker."""
    running = asyncio.create_task(
        app.run_worker_async(
            concurrency=options.workers, wait=False, listen_notify=False, install_signal_handlers=False
        )
    )
    seconds = await asyncio.to_thread(progress.completed, counting(options.url, LEFT))
    await running
    return seconds


async def drive(options: Options) -> Outcome:
    """One run."""
    connector = procrastinate.PsycopgConnector(conninfo=options.url, min_size=1, max_size=options.workers + 2)
    app = procrastinate.App(connector=connector)
    progress = Progress(options.tasks)

    async def noop(number: int) -> None:
        progress.tick(number)

    task = app.task(name="noop")(noop)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        await enqueue(task, options)
        seconds = time.perf_counter() - began
        if options.mode == "process":
            seconds = await process(app, options, progress)
    return Outcome(seconds, f"concurrency={options.workers}", setting(options.url))


if __name__ == "__main__":
    main("procrastinate", drive)
