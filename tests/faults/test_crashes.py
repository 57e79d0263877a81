"""A crash before and after each commit of a message's life: an exception, a process that ends, one that is killed."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import time
from typing import Any

import pytest

from recovery import Claim, Delivery, Fenced, ManualClock, Receiver
from recovery.canonical import reply_id, task_id
from tests.faults import crashing
from tests.faults.crashing import (
    AUTH,
    DELIVERY,
    DIED,
    ENVELOPE,
    FIRST,
    LATER_SECONDS,
    LEASE_SECONDS,
    START,
    WORK,
    Crash,
)

TASK_ID = task_id("agent-a", "m-1")
REPLY_ID = reply_id(TASK_ID)
PATIENCE_SECONDS = 20.0
# A claim is its task, its owner and its fence; the process that had it may be gone.
CLAIM = Claim(TASK_ID, FIRST, 1, 1, ENVELOPE.payload, 0.0, 0.0)
DELIVERED = f'{{"kind":"result","result":"answer","status":"done","task_id":"{TASK_ID}"}}'
HELD = Delivery(REPLY_ID, FIRST, 1, 1, DELIVERED, 0.0)

places = pytest.mark.parametrize("place", ["before", "after"])


# Each child is forked by a process that has one thread and has imported all this already, and starts in no time.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", crashing.__name__])


@pytest.fixture(params=["exception", "exit", "kill"])
def crash(request, database):
    """Crashes a step at its commit: by an exception, by the end of a process, and by SIGKILL from outside."""

    def by_exception(step, place):
        with pytest.raises(Crash):
            crashing.run(database, step, place, crashing.raise_crash)

    def by_exit(step, place):
        with _child(database, step, place, crashing.die) as child:
            child.join(PATIENCE_SECONDS)
            assert DIED == child.exitcode

    def by_kill(step, place):
        ours, theirs = processes.Pipe()
        wait = functools.partial(crashing.wait_for_the_kill, theirs, place)
        with ours, theirs, _child(database, step, place, wait) as child:
            assert ours.poll(PATIENCE_SECONDS), "it never came to its commit"
            assert (place, True) == (ours.recv(), child.is_alive())
            child.kill()
            child.join(PATIENCE_SECONDS)
            assert -signal.SIGKILL == child.exitcode

    return {"exception": by_exception, "exit": by_exit, "kill": by_kill}[request.param]


@contextlib.contextmanager
def _child(*arguments):
    child = processes.Process(target=crashing.run, args=arguments)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()
        child.close()


@pytest.fixture
def clock():
    """The clock of those who live on; it goes on where the one of the crash stood."""
    return ManualClock(START + LATER_SECONDS)


@pytest.fixture
def reopened(database, clock):
    """Opens fresh a queue and a receiver, as a process does that starts after the crash."""
    opened: list[Any] = []

    def reopen():
        opened.extend((crashing.open_queue(database, clock), Receiver.open(database, clock=clock)))
        return tuple(opened)

    yield reopen
    for one in opened:
        one.close()


def stored(queue):
    """The task's state and attempts, and its replies with how their delivery stands; None where there is no task."""
    task = queue.task(TASK_ID)
    return task and (task.state, task.attempts, [(reply.status, reply.state) for reply in queue.replies()])


def lived_on(queue, receiver):
    """Everybody does their part again until nothing is left; returns how the task ended, its attempts, and effects."""
    queue.receive(ENVELOPE, AUTH)

    def ended():
        claim = queue.claim("second")
        if claim is not None:
            queue.finish(claim, "answer")
        queue.dispatch_once(receiver, "second")
        return ["sent"] == [reply.state for reply in queue.replies()] or None

    assert had_in_time(ended), "the message never came to its end"
    state, attempts, replies = stored(queue)
    assert [(state, "sent")] == replies
    return state, attempts, receiver.effect_count()


def had_in_time(ask):
    """What `ask` answers once it has an answer: a server takes a moment to see that a client is gone."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (answer := ask()) is None and time.monotonic() < until:
        time.sleep(0.02)
    return answer


@places
def test_a_crash_while_receiving(crash, reopened, place):
    """Before the commit nothing is stored and the retry is new; after it all is, and the retry is a duplicate."""
    crash("receive", place)
    queue, receiver = reopened()
    assert {"before": None, "after": ("pending", 0, [])}[place] == stored(queue)
    assert (place == "after") == queue.receive(ENVELOPE, AUTH).duplicate
    assert ("done", 1, 1) == lived_on(queue, receiver)


@places
def test_a_crash_while_claiming(crash, reopened, clock, place):
    """Before the commit no attempt is spent; after it one is, and the task comes back when the lease is over."""
    crash("claim", place)
    queue, receiver = reopened()
    spent = {"before": 0, "after": 1}[place]
    assert ({"before": "pending", "after": "running"}[place], spent, []) == stored(queue)
    assert spent == queue.task(TASK_ID).fence
    if place == "after":
        assert None is queue.claim("second")
        clock.advance(LEASE_SECONDS)
    again = had_in_time(lambda: queue.claim("second"))
    assert (spent + 1, spent + 1) == (again.attempt, again.fence)
    queue.finish(again, "answer")
    assert ("done", spent + 1, 1) == lived_on(queue, receiver)


@places
def test_a_crash_while_finishing(crash, reopened, place):
    """Before the commit the task runs on with no reply; after it both are there; the same finish works either way."""
    crash("finish", place)
    queue, receiver = reopened()
    assert {"before": ("running", 1, []), "after": ("done", 1, [("done", "pending")])}[place] == stored(queue)
    queue.finish(CLAIM, "answer")
    queue.finish(CLAIM, "answer")
    assert ("done", 1, [("done", "pending")]) == stored(queue)
    assert ("done", 1, 1) == lived_on(queue, receiver)


@pytest.mark.parametrize(
    ("step", "first", "end"),
    [
        ("fail", ("pending", 1, []), ("done", 2, 1)),
        ("release", ("pending", 1, []), ("done", 2, 1)),
        ("give up", ("failed", 1, [("failed", "pending")]), ("failed", 1, 1)),
        ("cancel", ("cancelled", 1, [("cancelled", "pending")]), ("cancelled", 1, 1)),
    ],
)
@places
def test_a_crash_while_the_work_is_given_up(crash, reopened, place, step, first, end):
    """Before the commit the claim holds on, and the step may be done again; after it, it is refused; one reply."""
    crash(step, place)
    queue, receiver = reopened()
    assert {"before": ("running", 1, []), "after": first}[place] == stored(queue)
    if place == "before":
        WORK[step](queue, CLAIM)
    elif step == "cancel":
        assert WORK[step](queue, CLAIM) is False
    else:
        with pytest.raises(Fenced):
            WORK[step](queue, CLAIM)
    assert first == stored(queue)
    assert end == lived_on(queue, receiver)


@places
def test_a_crash_while_renewing(crash, reopened, clock, place):
    """Before the commit the lease ends when it did; after it later; and only then is the task another's."""
    crash("renew", place)
    queue, receiver = reopened()
    lease_until = START + LEASE_SECONDS + {"before": 0.0, "after": LATER_SECONDS}[place]
    assert ("running", 1, []) == stored(queue)
    assert lease_until == queue.task(TASK_ID).lease_until
    clock.advance(lease_until - clock.now - 0.5)
    assert None is queue.claim("second")
    clock.advance(0.5)
    assert ("done", 2, 1) == lived_on(queue, receiver)


@places
def test_a_crash_while_accepting(crash, reopened, clock, place):
    """Before the commit there is neither receipt nor effect; after it both, and the next delivery is a duplicate."""
    crash("accept", place)
    queue, receiver = reopened()
    known = place == "after"
    assert (known, int(known)) == (receiver.seen(REPLY_ID), receiver.effect_count())
    clock.advance(LEASE_SECONDS)
    again = had_in_time(lambda: queue.dispatch_once(receiver, "second"))
    assert (REPLY_ID, "sent", known) == (again.reply_id, again.state, again.duplicate)
    assert ("done", 1, 1) == lived_on(queue, receiver)


@places
@pytest.mark.parametrize(("step", "state"), [("sent", "sent"), ("ack lost", "pending")])
def test_a_crash_while_the_delivery_is_settled(crash, reopened, clock, place, step, state):
    """Before the commit the reply is still being sent, after it settled, for good or not; the effect stands once."""
    crash(step, place)
    queue, receiver = reopened()
    assert ("done", 1, [("done", {"before": "sending", "after": state}[place])]) == stored(queue)
    if place == "after":
        with pytest.raises(Fenced):
            DELIVERY[step](queue, receiver, HELD)
    clock.advance(LEASE_SECONDS)
    if (place, state) != ("after", "sent"):
        again = had_in_time(lambda: queue.dispatch_once(receiver, "second"))
        assert ("sent", True) == (again.state, again.duplicate)
    assert None is queue.dispatch_once(receiver, "second")
    assert ("done", 1, 1) == lived_on(queue, receiver)
