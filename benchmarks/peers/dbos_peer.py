"""dbos: durable workflows on PostgreSQL; a task is a workflow without steps, put in by its client."""

import time
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig  # type: ignore[import-not-found]  # it lives in the peer's environment

from benchmarks.peers.driver import Options, Outcome, Progress, counting, main, setting

LEFT = "SELECT count(*) FROM dbos.workflow_status WHERE queue_name = 'noops' AND status <> 'SUCCESS'"
WHERE = {"queue_name": "noops", "workflow_name": "noop"}


def enqueue(client: Any, engine: sa.Engine, options: Options) -> None:
    """Put the tasks in one by one, or a batch in one transaction of the caller's."""
    for chunk in options.chunks:
        if options.chunk == 1:
            client.enqueue(WHERE, chunk.start)
            continue
        with engine.begin() as connection:
            for number in chunk:
                client.enqueue_in_transaction(connection, WHERE, number)


def launch(options: Options, progress: Progress) -> None:
    """Start the peer with its one workflow; its queue stays idle until tasks are put in."""
    DBOS(
        config=DBOSConfig(
            name="noops",
            system_database_url=options.url,
            sys_db_pool_size=20,
            max_executor_threads=options.workers,
            log_level="ERROR",
        )
    )

    def noop(number: int) -> None:
        progress.tick(number)

    DBOS.workflow(name="noop")(noop)
    DBOS.launch()


def drive(options: Options) -> Outcome:
    """One run: the queue is declared only after the tasks are in, so that its worker finds them all."""
    progress = Progress(options.tasks)
    launch(options, progress)
    client = DBOSClient(system_database_url=options.url)
    engine = sa.create_engine(options.url.replace("postgresql:", "postgresql+psycopg:", 1))
    began = time.perf_counter()
    enqueue(client, engine, options)
    seconds = time.perf_counter() - began
    if options.mode == "process":
        left = counting(options.url, LEFT)
        DBOS.register_queue("noops", worker_concurrency=options.batch, polling_interval_sec=0.005)
        seconds = progress.completed(left)
    client.destroy()
    DBOS.destroy()
    settings = f"threads={options.workers}, worker_concurrency={options.batch}, polling_interval_sec=0.005"
    return Outcome(seconds, settings, setting(options.url))


if __name__ == "__main__":
    main("dbos", drive)
