"""recovery itself, under the same command line: batches of claims and finishes, or one at a time with `--batch 1`."""

import threading
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from benchmarks.peers.driver import Options, Outcome, main, setting
from recovery import AuthContext, Envelope, Queue, migrate
from recovery.queue import Session

SENDER = "bench"


def envelopes(numbers: range) -> list[Envelope]:
    """One message for each number."""
    deadline = time.time() + 86400
    return [Envelope(f"m-{number}", SENDER, {"number": number}, deadline) for number in numbers]


def enqueue(session: Session, options: Options) -> None:
    """Put the tasks in, in one transaction a batch, or one by one."""
    auth = AuthContext(SENDER)
    for chunk in options.chunks:
        if options.chunk == 1:
            session.receive(envelopes(chunk)[0], auth)
        else:
            session.receive_all(envelopes(chunk), auth)


def in_batches(session: Session, owner: str, batch: int) -> Iterator[int]:
    """Claim and finish whole batches, a commit each, until nothing is claimable."""
    while claims := session.claim_batch(owner, batch):
        verdicts = session.finish_batch([(claim, None) for claim in claims])
        yield sum(verdict.ok for verdict in verdicts)


def one_by_one(session: Session, owner: str) -> Iterator[int]:
    """Finish one task and claim the next in the same commit, until nothing is claimable."""
    claim = session.claim(owner)
    while claim is not None:
        claim = session.finish_and_claim(claim, None)
        yield 1


def work(queue: Queue, options: Options, owner: str, done: list[int]) -> None:
    """One worker: a held connection and a loop."""
    with queue.session() as session:
        loop = one_by_one(session, owner) if options.batch == 1 else in_batches(session, owner, options.batch)
        done.append(sum(loop))


def process(queue: Queue, options: Options) -> float:
    """Drain the queue with threads that hold a connection each."""
    done: list[int] = []
    threads = [
        threading.Thread(target=work, args=(queue, options, f"worker-{number}", done))
        for number in range(options.workers)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if sum(done) != options.tasks:
        raise RuntimeError(f"{sum(done)} of {options.tasks} tasks were finished")
    return seconds


def durability(options: Options) -> str:
    """What the contract promises for this backend."""
    if options.backend != "sqlite":
        return setting(options.url, "set to on by the library in each transaction")
    return f"wal, synchronous=FULL (set by the library); SQLite {linked()}"


def linked() -> str:
    """The SQLite that the library uses: pysqlite3's where it is installed."""
    module = "pysqlite3" if find_spec("pysqlite3") else "sqlite3"
    return str(import_module(module).sqlite_version)


def way(options: Options) -> str:
    """Which verbs were used."""
    if options.mode == "enqueue":
        return "receive" if options.batch == 1 else f"receive_all({options.batch})"
    verbs = "finish_and_claim" if options.batch == 1 else f"claim_batch({options.batch})+finish_batch"
    return f"{verbs}, threads={options.workers}"


def drive(options: Options) -> Outcome:
    """One run."""
    migrate(options.url)
    with Queue.open(options.url, allowed_sources={SENDER}, lease_seconds=60) as queue:
        with queue.session() as session:
            began = time.perf_counter()
            enqueue(session, options)
            seconds = time.perf_counter() - began
        if options.mode == "process":
            seconds = process(queue, options)
    return Outcome(seconds, way(options), durability(options))


if __name__ == "__main__":
    main("recovery", drive)
