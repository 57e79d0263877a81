"""The whole way of a message, stage by stage, and how soon a worker that waits picks up what comes."""

from __future__ import annotations

import multiprocessing
import random
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

from recovery import Claim, Queue
from recovery.runtime.stopping import Stop
from recovery.runtime.worker import Worker

from ..bench import Bench, Point
from ..filling import RESULT, envelope
from ..measuring import median, rounded, spread_ms
from ..targets import AUTH, Place

STAGES = ("receive", "claim", "finish", "claim_reply", "accept", "settle")
WAIT_SECONDS = 30.0
IDLE_SECONDS = (0.05, 0.5)
"""How long the queue lies idle between two messages: drawn between these, so that no poll can be in step with it."""


def run(bench: Bench) -> list[Point]:
    """Two points: the whole way on one held session, and the idle pick-up."""
    return [_whole(bench), _idle(bench)]


def _whole(bench: Bench) -> Point:
    times: dict[str, list[float]] = {stage: [] for stage in STAGES}
    rates = []
    for number in range(bench.options.rounds):
        bench.step(f"receive to receipt, round {number + 1} of {bench.options.rounds}")
        with bench.target.fresh() as here, bench.target.fresh() as there:
            began = time.monotonic()
            _messages(bench, number, here, there, times)
            rates.append(bench.options.cycles / (time.monotonic() - began))
    spreads: dict[str, Any] = {}
    for stage, seconds in times.items():
        spreads |= spread_ms(stage, seconds)
    whole = [sum(stages) for stages in zip(*times.values(), strict=True)]
    facts = {"messages_per_second": rounded(median(rates), 1), **spread_ms("whole", whole), **spreads}
    return bench.point("whole", case="receive to receipt", workers=1, batch=1, rounds=len(rates), **facts)


def _messages(bench: Bench, number: int, here: Place, there: Place, times: dict[str, list[float]]) -> None:
    """Bring so many messages from the sender to a receipt in the receiver's database, one after the other."""
    salt = bench.salt("whole", number)
    with here.queue() as queue, there.receiver() as receiver, queue.session() as held:
        session: Any = held
        for at in range(bench.options.cycles):
            message = envelope(f"{salt}{at}", bench.options.payload_bytes)
            marks = [time.monotonic()]
            session.receive(message, AUTH)
            marks.append(time.monotonic())
            claim = session.claim("worker")
            marks.append(time.monotonic())
            session.finish(claim, RESULT)
            marks.append(time.monotonic())
            reply = session.claim_reply("dispatcher")
            marks.append(time.monotonic())
            receiver.accept(reply.reply_id, reply.payload)
            marks.append(time.monotonic())
            session.settle(reply, delivered=True)
            marks.append(time.monotonic())
            for stage, (before, after) in zip(STAGES, pairwise(marks), strict=True):
                times[stage].append(after - before)
        if receiver.effect_count() != bench.options.cycles:
            raise RuntimeError("not every reply had its effect exactly once.")


def _idle(bench: Bench) -> Point:
    """From the ACK of a message to the moment in which an idle worker's handler has it."""
    count = max(5, min(60, int(bench.options.seconds * 4)))
    bench.step(f"idle pick-up, {count} messages")
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    with bench.target.fresh() as place:
        process = context.Process(target=_work, args=(place, theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            waits = _send(bench, place, ours, count)
        finally:
            process.terminate()
            process.join(WAIT_SECONDS)
    return bench.point("whole", case="idle pick-up", workers=1, messages=count, **spread_ms("pickup", waits))


def _send(bench: Bench, place: Place, pipe: Connection, count: int) -> list[float]:
    drawn = random.Random(bench.options.seed)
    waits = []
    with place.queue() as queue, queue.session() as session:
        _told(pipe)
        for at in range(count):
            time.sleep(drawn.uniform(*IDLE_SECONDS))
            session.receive(envelope(f"{bench.salt('idle')}{at}"), AUTH)
            acknowledged = time.monotonic()
            waits.append(max(0.0, _told(pipe) - acknowledged))
    return waits


def _told(pipe: Connection) -> float:
    if not pipe.poll(WAIT_SECONDS):
        raise TimeoutError("the idle worker did not pick the message up.")
    return float(pipe.recv())


def _work(place: Place, pipe: Connection) -> None:
    """A worker as `recovery work` runs it; its handler only says when it began."""
    with Queue.open(place.url, **place.settings()) as queue, Stop() as stop:
        pipe.send(time.monotonic())

        def handler(_: Claim) -> object:
            pipe.send(time.monotonic())
            return RESULT

        Worker(queue, handler, stop, owner="idle").run()
