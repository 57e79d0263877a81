"""Real worker processes, each with held sessions, started together, working until the common window is over.

A worker keeps what it did, spell by spell, and hands it over at the end; nothing is counted while it works.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy as sa

from recovery import Busy, Claim, Queue

from .filling import RESULT
from .measuring import Spell
from .targets import Place

LEAD_SECONDS = 0.3
"""Everybody works for so long before the window opens, so that nothing is measured cold."""
PATIENCE_SECONDS = 300.0
DRY_AFTER = 3
"""So many empty answers in a row mean that there is nothing left, and not that others hold what there is."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process does. `work` names one of `kinds()`, and `detail` is for it to read."""

    place: Place
    seconds: float
    batch: int = 1
    threads: int = 1
    number: int = 0
    work: str = "product"
    detail: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Log:
    """What one worker did."""

    spells: list[Spell] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    empty: int = 0
    busy: int = 0
    retries: int = 0
    fenced: int = 0
    dry_at: float | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What all workers did, and the window that counts: it closes early where the work ran out."""

    logs: list[Log]
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long the window was."""
        return self.end - self.start

    def spells(self) -> list[list[Spell]]:
        """The spells of each worker that ended in the window, so that its edges take as much as they give."""
        return [[spell for spell in log.spells if self.start < spell.ended <= self.end] for log in self.logs]

    def waits(self) -> list[float]:
        """How long each claim took that anybody waited for in the window, also where it began before or ended after.

        To leave out what reached over an edge would leave out the longest waits.
        """
        met = (spell for log in self.logs for spell in log.spells if spell.began < self.end and spell.held > self.start)
        return [spell.held - spell.began for spell in met]


class Clock:
    """When the window opens and closes; the worker asks after each spell whether it shall go on."""

    def __init__(self, start: float, seconds: float) -> None:
        self.start = start
        self.end = start + seconds

    def on(self) -> bool:
        return time.monotonic() < self.end


Loop = Callable[[Plan, Any, str, Clock, Log], None]
"""Works with an opened thing under an owner's name until the clock says stop."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of worker opens what its threads share, opens each thread's own, and works."""

    shared: Callable[[Plan, Log], Any]
    own: Callable[[Plan, Any], Any]
    loop: Loop


def _queue(plan: Plan, log: Log) -> Queue:
    queue = plan.place.queue(**plan.settings)

    def rolled_back(_: sa.Connection) -> None:
        log.retries += 1

    sa.event.listen(queue.engine, "rollback", rolled_back)
    return queue


def _session(_: Plan, queue: Queue) -> Any:
    session = queue.session()
    session.connection()
    return session


def _product(plan: Plan, session: Any, owner: str, clock: Clock, log: Log) -> None:
    """Claim, finish, again: one at a time, or in batches with one commit for the claims and one for the results."""
    empty = 0
    while clock.on():
        began = time.monotonic()
        claims = _claimed(session, owner, plan.batch, log)
        held = time.monotonic()
        if claims is None:
            continue
        if not claims:
            log.empty += 1
            empty += 1
            if empty == DRY_AFTER:
                log.dry_at = began
                return
            continue
        empty = 0
        log.done += _finished(session, claims, plan.batch, log)
        log.spells.append(Spell(began, held, time.monotonic(), len(claims)))


def _claimed(session: Any, owner: str, batch: int, log: Log) -> list[Claim] | None:
    """What was to be had, or None where the database was busy for as long as the bound."""
    try:
        if batch > 1:
            return list(session.claim_batch(owner, batch))
        claim = session.claim(owner)
    except Busy:
        log.busy += 1
        return None
    return [] if claim is None else [claim]


def _finished(session: Any, claims: Sequence[Claim], batch: int, log: Log) -> list[str]:
    while True:
        try:
            return _finish(session, claims, batch, log)
        except Busy:
            log.busy += 1


def _finish(session: Any, claims: Sequence[Claim], batch: int, log: Log) -> list[str]:
    if batch == 1:
        session.finish(claims[0], RESULT)
        return [claims[0].task_id]
    verdicts = session.finish_batch([(claim, RESULT) for claim in claims])
    log.fenced += sum(not verdict.ok for verdict in verdicts)
    return [claim.task_id for claim, verdict in zip(claims, verdicts, strict=True) if verdict.ok]


PRODUCT = Kind(_queue, _session, _product)


def kinds() -> dict[str, Kind]:
    """Every kind of worker by its name."""
    from .scenarios import strategies  # Builds on this module.

    return {"product": PRODUCT, "strategy": strategies.KIND}


def run(plans: Sequence[Plan], *, lead_seconds: float = LEAD_SECONDS) -> Run:
    """Start a process for each plan, let them work together, and return what they did.

    The window opens `lead_seconds` after they began. Raises RuntimeError with what a worker raised.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier = context.Barrier(len(plans) + 1)
    start = context.Value("d", 0.0)
    pipes = []
    processes = []
    for plan in plans:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_process, args=(plan, barrier, start, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        barrier.wait(PATIENCE_SECONDS)
        start.value = time.monotonic() + min(lead_seconds, plans[0].seconds)
        barrier.wait(PATIENCE_SECONDS)
        logs = [log for pipe in pipes for log in _received(pipe, plans[0].seconds)]
    except threading.BrokenBarrierError:
        logs = [log for pipe in pipes for log in _received(pipe, 1.0)]
    finally:
        for process in processes:
            process.join(PATIENCE_SECONDS)
    for log in logs:
        if log.failure:
            raise RuntimeError(f"a worker failed:\n{log.failure}")
    return window(logs, start.value, plans[0].seconds)


def window(logs: list[Log], start: float, seconds: float) -> Run:
    """The common window: all of it, or up to where the first worker found nothing left."""
    dry = [log.dry_at for log in logs if log.dry_at is not None]
    return Run(logs, start, max(start, min([start + seconds, *dry])))


def _received(pipe: Connection, seconds: float) -> Iterator[Log]:
    if not pipe.poll(seconds + PATIENCE_SECONDS):
        raise TimeoutError("a worker did not answer.")
    try:
        yield from pipe.recv()
    except EOFError:
        yield Log(failure="the process died without a word.")


def _process(plan: Plan, barrier: Any, start: Any, pipe: Connection) -> None:
    logs = [Log() for _ in range(plan.threads)]
    try:
        _threads(plan, barrier, start, logs)
    except BaseException:  # noqa: BLE001 - the parent tells it to whoever started the benchmark
        barrier.abort()
        logs[0].failure = traceback.format_exc()
    pipe.send(logs)
    pipe.close()


def _threads(plan: Plan, barrier: Any, start: Any, logs: list[Log]) -> None:
    """Open everything, wait for everybody, and let one thread for each log work."""
    kind = kinds()[plan.work]
    shared = kind.shared(plan, logs[0])
    opened = [kind.own(plan, shared) for _ in logs]
    barrier.wait(PATIENCE_SECONDS)
    barrier.wait(PATIENCE_SECONDS)
    clock = Clock(start.value, plan.seconds)
    threads = [
        threading.Thread(target=_guarded, args=(kind.loop, plan, own, f"bench-{plan.number}-{index}", clock, log))
        for index, (own, log) in enumerate(zip(opened, logs, strict=True))
    ]
    for thread in threads[1:]:
        thread.start()
    threads[0].run()
    for thread in threads[1:]:
        thread.join()
    for own in opened:
        own.close()
    if shared is not None:
        shared.close()


def _guarded(loop: Loop, plan: Plan, own: Any, owner: str, clock: Clock, log: Log) -> None:
    try:
        loop(plan, own, owner, clock, log)
    except BaseException:  # noqa: BLE001 - see _process
        log.failure = traceback.format_exc()
