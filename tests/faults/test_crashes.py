"""A crash before and after each commit of a message's life, by an exception and by the death of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from recovery import Claim, Receiver
from recovery.canonical import reply_id, task_id
from tests.faults import crashing
from tests.faults.crashing import AUTH, DIED, ENVELOPE, FIRST, Crash

ROOT = Path(__file__).parents[2]
TASK_ID = task_id("agent-a", "m-1")
REPLY_ID = reply_id(TASK_ID)
PATIENCE_SECONDS = 20.0

places = pytest.mark.parametrize("place", ["before", "after"])


@pytest.fixture(params=["exception", "exit"])
def crash(request, database):
    """Crashes a step at its commit; the test runs with an exception and with a process that dies."""

    def by_exception(step, place):
        with pytest.raises(Crash):
            crashing.run(database, step, lambda engine: crashing.break_commit(engine, place, crashing.raise_crash))

    def by_exit(step, place):
        command = [sys.executable, crashing.__file__, database, step, place]
        ended = subprocess.run(
            command,
            check=False,
            timeout=60,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert DIED == ended.returncode, ended.stderr

    return by_exception if request.param == "exception" else by_exit


@pytest.fixture
def reopened(database):
    """Opens fresh a queue and a receiver, as a process does that starts after the crash."""
    opened: list[Any] = []

    def reopen(step):
        opened.extend((crashing.open_queue(database, step), Receiver.open(database)))
        return tuple(opened[-2:])

    yield reopen
    for one in opened:
        one.close()


def lived_on(queue, receiver):
    """Everybody does their part again until nothing is left; returns attempts of the task, and effects."""
    queue.receive(ENVELOPE, AUTH)
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        claim = queue.claim("second")
        if claim is not None:
            queue.finish(claim, "answer")
        queue.dispatch_once(receiver, "second")
        if ["sent"] == [reply.state for reply in queue.replies()]:
            return queue.task(TASK_ID).attempts, receiver.effect_count()
        time.sleep(0.02)  # The lease that the crash left behind.
    raise AssertionError("the message never came to its end")


def had_in_time(ask):
    """What `ask` answers once a short lease is over."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (answer := ask()) is None and time.monotonic() < until:
        time.sleep(0.02)  # The lease that the crash left behind.
    return answer


@places
def test_a_crash_while_receiving(crash, reopened, place):
    """Before the commit nothing is stored and the retry is new; after it all is, and the retry is a duplicate."""
    crash("receive", place)
    queue, receiver = reopened("receive")
    stored = queue.task(TASK_ID)
    assert {"before": None, "after": "pending"}[place] == (stored and stored.state)
    assert (place == "after") == queue.receive(ENVELOPE, AUTH).duplicate
    assert (1, 1) == lived_on(queue, receiver)


@places
def test_a_crash_while_claiming(crash, reopened, place):
    """Before the commit no attempt is spent; after it one is, and the task comes back when the lease is over."""
    crash("claim", place)
    queue, receiver = reopened("claim")
    spent = {"before": 0, "after": 1}[place]
    stored = queue.task(TASK_ID)
    assert ({"before": "pending", "after": "running"}[place], spent, spent) == (
        stored.state,
        stored.attempts,
        stored.fence,
    )
    again = had_in_time(lambda: queue.claim("second"))
    assert (spent + 1, spent + 1) == (again.attempt, again.fence)
    queue.finish(again, "answer")
    assert (spent + 1, 1) == lived_on(queue, receiver)


@places
def test_a_crash_while_finishing(crash, reopened, place):
    """Before the commit the task runs on with no reply; after it both are there; the same finish works either way."""
    crash("finish", place)
    queue, receiver = reopened("finish")
    expected = {"before": ("running", []), "after": ("done", ["done"])}[place]
    assert expected == (queue.task(TASK_ID).state, [reply.status for reply in queue.replies()])
    # A claim is its task, its owner and its fence; the process that had it may be gone.
    claim = Claim(TASK_ID, FIRST, 1, 1, ENVELOPE.payload, 0.0, 0.0)
    queue.finish(claim, "answer")
    queue.finish(claim, "answer")
    assert ("done", ["done"]) == (queue.task(TASK_ID).state, [reply.status for reply in queue.replies()])
    assert (1, 1) == lived_on(queue, receiver)


@places
def test_a_crash_while_accepting(crash, reopened, place):
    """Before the commit there is neither receipt nor effect; after it both, and the next delivery is a duplicate."""
    crash("accept", place)
    queue, receiver = reopened("accept")
    stored = place == "after"
    assert (stored, int(stored)) == (receiver.seen(REPLY_ID), receiver.effect_count())
    again = had_in_time(lambda: queue.dispatch_once(receiver, "second"))
    assert (REPLY_ID, "sent", stored) == (again.reply_id, again.state, again.duplicate)
    assert (1, 1) == lived_on(queue, receiver)


@places
def test_a_crash_while_the_delivery_is_settled(crash, reopened, place):
    """Before the commit the reply is delivered again, as a duplicate; after it never; the effect stands once."""
    crash("sent", place)
    queue, receiver = reopened("sent")
    assert [{"before": "sending", "after": "sent"}[place]] == [reply.state for reply in queue.replies()]
    if place == "before":
        again = had_in_time(lambda: queue.dispatch_once(receiver, "second"))
        assert ("sent", True) == (again.state, again.duplicate)
    assert None is queue.dispatch_once(receiver, "second")
    assert (1, 1) == lived_on(queue, receiver)
