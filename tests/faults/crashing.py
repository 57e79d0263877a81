"""The steps of a message's life, each with a crash at its commit: in this process, or in one that really dies."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import sqlalchemy as sa

from recovery import AuthContext, Claim, Delivery, Envelope, ManualClock, Queue, Receiver

DIED = 7
FIRST = "first"
AUTH = AuthContext("agent-a")
ENVELOPE = Envelope("m-1", "agent-a", {"ask": "add"}, deadline=4e9)
START, LEASE_SECONDS = 1000.0, 10.0
LATER_SECONDS = 1.0
"""How long after its claim a worker does what it does: a renewal that changed nothing could not be seen."""


class Crash(Exception):
    """What the commit raises; it is neither the driver's nor SQLAlchemy's."""


def open_queue(url: str, clock: ManualClock | None = None) -> Queue:
    """A queue that waits for nothing but its leases, which end by the clock given."""
    leases = {"lease_seconds": LEASE_SECONDS, "delivery_lease_seconds": LEASE_SECONDS}
    return Queue.open(url, allowed_sources={"agent-a"}, clock=clock, backoff=0.0, **leases)


def break_commit(engine: sa.Engine, place: str, crash: Callable[[], NoReturn]) -> None:
    """From now on a commit of this engine crashes, `before` it is sent or `after` it returned."""
    dialect: Any = engine.dialect
    real = dialect.do_commit

    def do_commit(connection: Any) -> None:
        if place == "after":
            real(connection)
        crash()

    dialect.do_commit = do_commit


def raise_crash() -> NoReturn:
    """Crash by an exception."""
    raise Crash


def die() -> NoReturn:
    """Crash by the end of the process: no `finally`, no `atexit`, no goodbye to the server."""
    os._exit(DIED)


def wait_for_the_kill(line: Connection, place: str) -> NoReturn:
    """Say on the line that this is the moment, and do nothing more; end when nobody is left who could kill."""
    line.send(place)
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run(url: str, step: str, place: str, crash: Callable[[], NoReturn]) -> None:
    """Live up to `step` undisturbed, arm the crash, and do the step."""
    clock = ManualClock(START)
    with open_queue(url, clock) as queue, Receiver.open(url, clock=clock) as receiver:
        do = _prepared(step, queue, receiver, clock)
        break_commit((receiver if step == "accept" else queue).engine, place, crash)
        do()


def _prepared(step: str, queue: Queue, receiver: Receiver, clock: ManualClock) -> Callable[[], object]:
    if step == "receive":
        return lambda: queue.receive(ENVELOPE, AUTH)
    queue.receive(ENVELOPE, AUTH)
    if step == "claim":
        return lambda: queue.claim(FIRST)
    claim = queue.claim(FIRST)
    assert claim is not None
    clock.advance(LATER_SECONDS)
    if step in WORK:
        return lambda: WORK[step](queue, claim)
    queue.finish(claim, "answer")
    # Not dispatch_once: a receiver that raises is recorded there, and this one is to take all down with it.
    held = queue.claim_reply(FIRST)
    assert held is not None
    return lambda: DELIVERY[step](queue, receiver, held)


def _accepted(queue: Queue, receiver: Receiver, held: Delivery) -> None:
    receiver.accept(held.reply_id, held.payload)


def _sent(queue: Queue, receiver: Receiver, held: Delivery) -> None:
    receiver.accept(held.reply_id, held.payload)
    queue.settle(held, delivered=True)


def _ack_lost(queue: Queue, receiver: Receiver, held: Delivery) -> None:
    receiver.accept(held.reply_id, held.payload)
    queue.settle(held, delivered=False, error="ACK lost")


WORK: dict[str, Callable[[Queue, Claim], object]] = {
    "finish": lambda queue, claim: queue.finish(claim, "answer"),
    "fail": lambda queue, claim: queue.fail(claim, "boom"),
    "give up": lambda queue, claim: queue.fail(claim, "boom", retryable=False),
    "release": lambda queue, claim: queue.release(claim),
    "cancel": lambda queue, claim: queue.cancel(claim.task_id),
    "renew": lambda queue, claim: queue.renew(claim),
}
"""What may be done with a claim."""

DELIVERY: dict[str, Callable[[Queue, Receiver, Delivery], object]] = {
    "accept": _accepted,
    "sent": _sent,
    "ack lost": _ack_lost,
}
"""What may become of a reply that is being sent; the receiver's commit is another engine's than the queue's."""
