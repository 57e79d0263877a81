"""chancy: jobs on PostgreSQL, here with its asyncio executor; ends of jobs are written in batches, on a timer."""

import asyncio
import logging
import time
from typing import Any

from chancy import Chancy, Job, Queue, Worker  # type: ignore[import-not-found]  # it lives in the peer's environment

from benchmarks.peers.driver import Options, Outcome, Progress, counting, main, setting

LEFT = "SELECT count(*) FROM chancy_jobs WHERE state <> 'succeeded'"
progress = Progress(0)


async def noop(*, number: int) -> None:
    """Do nothing but count; found by its import path, so it stands at the top of the module."""
    progress.tick(number)


async def enqueue(chancy: Any, options: Options) -> None:
    """Put the tasks in, in batches or one by one."""
    for chunk in options.chunks:
        jobs = [Job.from_func(noop, queue="default", kwargs={"number": number}) for number in chunk]
        if options.chunk == 1:
            await chancy.push(jobs[0])
            continue
        async for _references in chancy.push_many(jobs, batch_size=options.chunk):
            pass


async def process(chancy: Any, options: Options) -> float:
    """Drain the queue with the peer's own worker."""
    worker = Worker(chancy, register_signal_handlers=False)
    worker.send_outgoing_interval = 0.01
    async with worker:
        return await asyncio.to_thread(progress.completed, counting(options.url, LEFT))


async def drive(options: Options) -> Outcome:
    """One run."""
    progress.tasks = options.tasks
    quiet = logging.getLogger("quiet")
    quiet.setLevel(logging.ERROR)
    async with Chancy(options.url, log=quiet) as chancy:
        await chancy.migrate()
        executor = Chancy.Executor.Async
        await chancy.declare(
            Queue("default", concurrency=options.workers, executor=executor, eager_polling=True, polling_interval=1)
        )
        began = time.perf_counter()
        await enqueue(chancy, options)
        seconds = time.perf_counter() - began
        if options.mode == "process":
            seconds = await process(chancy, options)
    settings = f"AsyncExecutor, concurrency={options.workers}, eager_polling, send_outgoing_interval=0.01"
    return Outcome(seconds, settings, setting(options.url, "left alone; ends of jobs are kept in memory for 10 ms"))


if __name__ == "__main__":
    main("chancy", drive)
