"""The steps of a message's life, each with a crash at its commit: in this process, or in one that really dies.

As a script: `crashing.py URL STEP PLACE`, from the checkout; it ends with status 7, at the commit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import sqlalchemy as sa

from recovery import AuthContext, Claim, Envelope, Queue, Receiver

DIED = 7
FIRST = "first"
AUTH = AuthContext("agent-a")
ENVELOPE = Envelope("m-1", "agent-a", {"ask": "add"}, deadline=4e9)
LONG_SECONDS, SHORT_SECONDS = 60.0, 0.5

Arm = Callable[[sa.Engine], None]


class Crash(Exception):
    """What the commit raises; it is neither the driver's nor SQLAlchemy's."""


def open_queue(url: str, step: str) -> Queue:
    """A queue whose lease is short where the step loses it."""
    lease = SHORT_SECONDS if step == "claim" else LONG_SECONDS
    return Queue.open(
        url, allowed_sources={"agent-a"}, lease_seconds=lease, delivery_lease_seconds=SHORT_SECONDS, backoff=0.0
    )


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


def run(url: str, step: str, arm: Arm) -> None:
    """Live up to `step` undisturbed, arm the crash, and do the step."""
    with open_queue(url, step) as queue, Receiver.open(url) as receiver:
        STEPS[step](queue, receiver, arm)


def _receive(queue: Queue, receiver: Receiver, arm: Arm) -> None:
    arm(queue.engine)
    queue.receive(ENVELOPE, AUTH)


def _claim(queue: Queue, receiver: Receiver, arm: Arm) -> None:
    queue.receive(ENVELOPE, AUTH)
    arm(queue.engine)
    queue.claim(FIRST)


def _finish(queue: Queue, receiver: Receiver, arm: Arm) -> None:
    claim = _claimed(queue)
    arm(queue.engine)
    queue.finish(claim, "answer")


def _accept(queue: Queue, receiver: Receiver, arm: Arm) -> None:
    queue.finish(_claimed(queue), "answer")
    arm(receiver.engine)
    # Not dispatch_once: a receiver that raises is recorded there, and this one is to take all down with it.
    held = queue.claim_reply(FIRST)
    assert held is not None
    receiver.accept(held.reply_id, held.payload)


def _sent(queue: Queue, receiver: Receiver, arm: Arm) -> None:
    queue.finish(_claimed(queue), "answer")
    held = queue.claim_reply(FIRST)
    assert held is not None
    receiver.accept(held.reply_id, held.payload)
    arm(queue.engine)
    queue.settle(held, delivered=True)


def _claimed(queue: Queue) -> Claim:
    queue.receive(ENVELOPE, AUTH)
    claim = queue.claim(FIRST)
    assert claim is not None
    return claim


STEPS = {"receive": _receive, "claim": _claim, "finish": _finish, "accept": _accept, "sent": _sent}


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], lambda engine: break_commit(engine, sys.argv[3], die))
