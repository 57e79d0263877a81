"""oban: jobs on PostgreSQL for asyncio, fetched in batches as its concurrency limit allows."""

import asyncio
import time
from typing import Any

from oban import Oban, worker  # type: ignore[import-not-found]  # it lives in the peer's own environment
from oban.schema import install  # type: ignore[import-not-found]  # as above

from benchmarks.peers.driver import Options, Outcome, Progress, counting, main, setting

LEFT = "SELECT count(*) FROM oban_jobs WHERE state <> 'completed'"


def noop_worker(progress: Progress) -> Any:
    """Make a worker that does nothing but count."""

    class Noop:
        """Does nothing."""

        async def process(self, job: Any) -> None:
            progress.tick(job.id)

    return worker(queue="default")(Noop)


async def enqueue(oban: Any, noop: Any, options: Options) -> None:
    """Put the tasks in, in batches or one by one."""
    for chunk in options.chunks:
        await oban.enqueue_many([noop.new({"number": number}) for number in chunk])


async def process(pool: Any, options: Options, progress: Progress) -> float:
    """Drain the queue with the peer's own worker."""
    async with Oban(pool=pool, queues={"default": options.workers}, stager={"interval": 0.1}):
        return await asyncio.to_thread(progress.completed, counting(options.url, LEFT))


async def drive(options: Options) -> Outcome:
    """One run."""
    pool = await Oban.create_pool(options.url, min_size=1, max_size=10)
    await install(pool)
    progress = Progress(options.tasks)
    noop = noop_worker(progress)
    began = time.perf_counter()
    await enqueue(Oban(pool=pool), noop, options)
    seconds = time.perf_counter() - began
    if options.mode == "process":
        seconds = await process(pool, options, progress)
    await pool.close()
    return Outcome(seconds, f"limit={options.workers}", setting(options.url))


if __name__ == "__main__":
    main("oban", drive)
