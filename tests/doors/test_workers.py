"""A worker in trouble: the database away while it stores, its claim lost while it works, a signal at either time."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from recovery import Busy, CommitUnknown, Fenced, Queue, Unavailable
from recovery.runtime import worker
from recovery.runtime.stopping import Stop
from recovery.runtime.worker import LOST, STORE_TRIES, Heartbeat, Worker
from tests.plugins.queues import AUTH, SOURCES, envelope

LEASE_SECONDS = 1.0
LONG_SECONDS = 60.0


@pytest.fixture
def queue(database_url):
    """A queue with short leases, by the database's own clock."""
    with Queue.open(database_url, allowed_sources=SOURCES, lease_seconds=LEASE_SECONDS) as opened:
        yield opened


@pytest.fixture
def stop():
    """Catches the signals."""
    with Stop() as caught:
        yield caught


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(worker, "STORE_PAUSE_SECONDS", 0.0)


def troubled(monkeypatch, queue, name, errors):
    """Has the next calls of a verb raise these errors before they do anything; tells how many calls there were."""
    sound, left, calls = getattr(queue, name), iter(errors), []

    def call(*args, **kwargs):
        calls.append(args)
        for error in left:
            raise error
        return sound(*args, **kwargs)

    monkeypatch.setattr(queue, name, call, raising=False)
    return calls


def worked(queue, stop, handler):
    """What became of one task."""
    told: list[Any] = []
    ack = queue.receive(envelope("m", deadline=time.time() + LONG_SECONDS * 60), AUTH)
    Worker(queue, handler, stop, tell=told.append).run(once=True)
    (one,) = told
    return one.state, queue.task(ack.task_id).state


@pytest.mark.parametrize("error", [Busy, Unavailable, CommitUnknown])
def test_an_outcome_is_stored_again(queue, stop, monkeypatch, error):
    """The work is done; what keeps it from being stored just now is waited for, and the work is not done twice."""
    calls = troubled(monkeypatch, queue, "finish", [error()] * (STORE_TRIES - 1))
    handled: list[Any] = []
    assert ("done", "done") == worked(queue, stop, lambda claim: handled.append(claim.task_id))
    assert (STORE_TRIES, 1) == (len(calls), len(handled))


def test_an_outcome_that_cannot_be_stored_is_raised(queue, stop, monkeypatch):
    """After five tries the lease is left to end, and whoever runs the worker is told."""
    calls = troubled(monkeypatch, queue, "finish", [Busy()] * STORE_TRIES)
    ack = queue.receive(envelope("m", deadline=time.time() + LONG_SECONDS * 60), AUTH)
    with pytest.raises(Busy):
        Worker(queue, lambda claim: 1, stop)._one()
    assert (STORE_TRIES, "running") == (len(calls), queue.task(ack.task_id).state)


def test_an_outcome_after_the_claim_was_lost(queue, stop):
    """What somebody else has by now is not touched, and the worker says so."""

    def slow(claim):
        assert queue.cancel(claim.task_id)
        return 1

    assert (LOST, "cancelled") == worked(queue, stop, slow)


def test_a_failure_after_the_claim_was_lost(queue, stop):
    """The same where the work failed besides."""

    def bad(claim):
        assert queue.cancel(claim.task_id)
        raise RuntimeError

    assert (LOST, "cancelled") == worked(queue, stop, bad)


def test_a_heartbeat_goes_on_after_an_error(queue, monkeypatch):
    """One renewal that could not be had is not the end: the next one is tried."""
    queue.receive(envelope("m", deadline=time.time() + LONG_SECONDS * 60), AUTH)
    claim = queue.claim("w")
    renewed = threading.Event()
    sound = queue.renew

    def renew(held):
        calls.append(held)
        if len(calls) == 1:
            raise Unavailable
        sound(held)
        renewed.set()

    calls: list[object] = []
    monkeypatch.setattr(queue, "renew", renew, raising=False)
    with Heartbeat(queue, claim):
        assert renewed.wait(LONG_SECONDS)
    queue.finish(claim, 1)


def test_a_heartbeat_ends_with_its_claim(queue, monkeypatch):
    """A claim that is lost is not renewed any more, however long the work takes."""
    queue.receive(envelope("m", deadline=time.time() + LONG_SECONDS * 60), AUTH)
    claim = queue.claim("w")
    queue.cancel(claim.task_id)
    calls: list[Any] = []
    sound = queue.renew

    def renew(held):
        calls.append(held)
        return sound(held)

    monkeypatch.setattr(queue, "renew", renew, raising=False)
    with Heartbeat(queue, claim) as heartbeat:
        heartbeat._thread.join(LONG_SECONDS)
        assert not heartbeat._thread.is_alive()
    assert 1 == len(calls)
    with pytest.raises(Fenced):
        queue.finish(claim, 1)


def test_a_signal_before_the_work_hands_it_back(queue, stop):
    """Who was asked to end does not begin: the task waits for somebody else, and no attempt is spent."""
    signal.raise_signal(signal.SIGTERM)
    handled: list[Any] = []
    assert ("pending", "pending") == worked(queue, stop, handled.append)
    assert [] == handled


def test_a_signal_while_it_works_hands_it_back(queue, stop):
    """The handler is interrupted; two signals at once are one."""

    def interrupted(claim):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal did not come through")

    assert ("pending", "pending") == worked(queue, stop, interrupted)
    signal.raise_signal(signal.SIGTERM)
    assert stop.wanted


def test_a_signal_cuts_a_wait_short(stop):
    """And where one came before, there is no wait at all."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGTERM])
    timer.start()
    stop.sleep(LONG_SECONDS * 60)
    timer.join()
    stop.sleep(LONG_SECONDS * 60)
    assert stop.wanted
