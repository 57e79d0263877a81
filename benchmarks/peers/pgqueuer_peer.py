"""pgqueuer: jobs on PostgreSQL for asyncio, fetched and logged in batches, over asyncpg."""

import asyncio
import time
from typing import Any

import asyncpg  # type: ignore[import-not-found]  # it lives in the peer's own environment
from pgqueuer import PgQueuer  # type: ignore[import-not-found]  # it lives in the peer's own environment
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]  # it lives in the peer's own environment
from pgqueuer.queries import Queries  # type: ignore[import-not-found]  # it lives in the peer's own environment
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found]  # as above

from benchmarks.peers.driver import Options, Outcome, Progress, counting, main, setting


async def enqueue(queries: Any, options: Options) -> None:
    """Put the tasks in, in batches or one by one."""
    for chunk in options.chunks:
        payloads = [b'{"number":%d}' % number for number in chunk]
        if options.chunk == 1:
            await queries.enqueue("noop", payloads[0])
        else:
            await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


async def process(connection: Any, options: Options, progress: Progress) -> float:
    """Drain the queue with the peer's own worker."""
    queuer = PgQueuer(AsyncpgDriver(connection))

    async def noop(job: Any) -> None:
        progress.tick(job.id)

    queuer.entrypoint("noop")(noop)
    running = asyncio.create_task(queuer.qm.run(batch_size=options.batch, mode=QueueExecutionMode.drain))
    seconds = await asyncio.to_thread(progress.completed, counting(options.url, "SELECT count(*) FROM pgqueuer"))
    await running
    return seconds


async def drive(options: Options) -> Outcome:
    """One run."""
    connection = await asyncpg.connect(options.url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    began = time.perf_counter()
    await enqueue(queries, options)
    seconds = time.perf_counter() - began
    if options.mode == "process":
        seconds = await process(connection, options, progress=Progress(options.tasks))
    note = "left alone; all tables logged, its default"
    return Outcome(seconds, f"batch_size={options.batch}", setting(options.url, note))


if __name__ == "__main__":
    main("pgqueuer", drive)
