"""The scheduler of faults where something is not there, does not come back, or does not end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

import pytest

from recovery import AuthContext, Envelope, Queue
from recovery.testing.torture import run, scheduler
from recovery.testing.torture.company import Company, forked
from recovery.testing.torture.places import Places
from recovery.testing.torture.plan import SENDER, WORKER, Doom, Plan, Rates
from recovery.testing.torture.run import Wish
from recovery.testing.torture.scheduler import DONE, NOT_DONE, STOPPED_MAX, Helper, Scheduler
from recovery.testing.torture.tally import Tally
from recovery.testing.torture.timetable import Fault

FAULT = Fault(1.0, "kill", 0.5, 0.5)


@pytest.fixture
def plan(database, tmp_path):
    """A plan in which no actor does anything to itself."""
    return Plan(database, database, database, tmp_path, 1.0, 1, time.time(), 0, 0.0, False, Tally())  # noqa: FBT003


@pytest.fixture
def company(plan):
    """A company in which nobody lives yet; whoever does by the end of a test is ended."""
    with socket.socket() as listening:
        made = Company(plan, listening)
        yield made
        for actor in made.actors:
            if actor.is_alive:
                os.kill(actor.pid, signal.SIGKILL)
                os.waitpid(actor.pid, 0)


@pytest.fixture
def scheduled(company, plan):
    """A scheduler of it, without a server of its own and without a small disk."""
    places = Places(plan.url, plan.receiver_url, "recovery_torture")
    return Scheduler(company, places, Rates(), None, lambda _: None)


def asleep(actor):
    """Let an actor live who does nothing."""

    def be():
        while True:
            time.sleep(60)

    actor.lives, actor.born, actor.pid = 1, time.time(), forked(be)


def kinds(company):
    """What was noted, in order."""
    return [event.kind for event in company.events]


def test_a_pause_of_the_machine_is_noted_and_not_counted(scheduled, company):
    """Where the scheduler itself did not run for two seconds, no fault was due; less than that is a slow machine."""
    assert 0.0 == scheduled._paused(100.0, 101.9)
    assert [] == company.events
    assert 5.0 == scheduled._paused(100.0, 105.0)
    (event,) = company.events
    assert ("pause", 100.0, 105.0) == (event.kind, event.at, event.until)


def test_faults_meet_nobody_where_nobody_is(scheduled, company):
    """Nothing is killed or stopped, no server is broken that is not ours, and no disk filled that is not small."""
    for kind in ("kill", "stop", "crash", "full"):
        scheduled._faults[kind](FAULT)
    assert ([], {}) == (company.events, scheduled._helpers)


def test_some_go_on_whatever_is_stopped(scheduled, company):
    """No more than so many are frozen at once, and a frozen one is not frozen a second time; waking ends all of it."""
    for actor in company.actors[: STOPPED_MAX + 1]:
        asleep(actor)
    for _ in range(2 * STOPPED_MAX):
        scheduled._stop(FAULT)
    stopped = [actor.life for actor in company.actors if actor.stopped_until is not None]
    assert (["stop"] * STOPPED_MAX, STOPPED_MAX) == (kinds(company), len(set(stopped)))
    company.wake(time.time() + 60)
    assert ["woken"] * STOPPED_MAX == kinds(company)[STOPPED_MAX:]
    assert [] == [actor for actor in company.actors if actor.stopped_until is not None]


def test_how_a_life_ended_is_told_from_its_code(scheduled, company):
    """By its own hand, as it was doomed to; by a kill, which was noted when it was done; by an error, a finding."""
    actor = next(one for one in company.actors if one.role == WORKER)
    actor.lives, actor.doom = 1, Doom("finish", "after", 1)
    scheduled._after(actor, 81, 100.0)
    scheduled._after(actor, -9, 100.0)
    scheduled._after(actor, 70, 100.0)
    assert [("exit", "finish, after COMMIT"), ("broken", "ended with 70")] == [
        (event.kind, event.detail) for event in company.events
    ]
    assert 1 == company.met["finish", "after"]
    assert actor.due > 100.0


def test_who_was_asked_to_end_is_not_born_again(scheduled, company):
    """A life that ended well is over, and nothing is noted."""
    actor = company.actors[0]
    scheduled._after(actor, 0, 100.0)
    assert (0.0, []) == (actor.due, company.events)


def test_a_server_that_does_not_come_back_is_a_finding(scheduled, company):
    """Any other helper that met nothing has just done nothing."""
    for kind in ("crash", "terminate", "full"):
        scheduled._helped(Helper(kind, 100.0), NOT_DONE)
    assert [("broken", "the server did not come back")] == [(event.kind, event.detail) for event in company.events]
    scheduled._helped(Helper("crash", 100.0), DONE)
    assert (100.0, "crash") == (company.events[-1].at, company.events[-1].kind)


def test_one_crash_at_a_time(scheduled, company):
    """A server is not stopped while it is being started; the helper is noted once it is done, and how long it took."""
    calls = []

    class Server:
        url = "postgresql://"

        def crash(self):
            calls.append("crash")

        def start(self):
            """It comes back."""

    scheduled._server = Server()
    scheduled._crash(FAULT)
    scheduled._crash(FAULT)
    assert 1 == len(scheduled._helpers)
    until = time.monotonic() + 60
    while scheduled._helpers and time.monotonic() < until:
        scheduled._reap(time.time())
        time.sleep(0.01)
    assert (["crash"], []) == (kinds(company), calls)  # What the helper did, it did in a process of its own.


def test_a_drain_that_waits_for_a_sender_has_an_end(scheduled, company, monkeypatch):
    """Who never comes to its last message is not waited for longer than two minutes, and that is said."""
    monkeypatch.setattr(scheduler, "DRAIN_SECONDS", 0.2)
    asleep(next(actor for actor in company.actors if actor.role == SENDER))
    assert not scheduled.drain()
    assert ["calm"] == kinds(company)
    assert company.plan.tally.calm


@pytest.mark.parametrize("is_open", [True, False])
def test_a_drain_waits_until_nothing_is_open(scheduled, plan, monkeypatch, is_open):
    """With a task that nobody takes it is not done; with none it is."""
    monkeypatch.setattr(scheduler, "DRAIN_SECONDS", 1.0 if is_open else 60.0)
    with Queue.open(plan.url, allowed_sources={"agent-a"}) as queue:
        task = queue.receive(Envelope("m", "agent-a", {}, 4e9), AuthContext("agent-a")).task_id
        if not is_open:
            queue.cancel(task)
            delivery = queue.claim_reply("w")
            assert delivery is not None
            queue.settle(delivery, delivered=True)
    assert is_open is not scheduled.drain()


def test_a_drain_outlives_a_database_that_is_away(tmp_path):
    """Whatever the driver says just now, it is asked again; in the end it was not done."""
    away = f"sqlite:///{tmp_path}/none/queue.db"
    watcher = forked(lambda: scheduler._watch(Places(away, away, "x"), time.time() + 0.5))
    assert NOT_DONE == os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1])


def test_who_is_no_actor_has_no_life(company):
    """The end of another process is not taken for one."""
    assert None is company.ended(2**22 + 1, 0)
    assert [] == company.events


def test_without_a_proxy_the_actors_lose_the_answers(plan, tmp_path, monkeypatch):
    """As many, and straight to the server, where that speaks only with who encrypts; the report says so."""
    monkeypatch.setattr(run, "address", lambda _: None)
    places = Places("postgresql://queue", "postgresql://receiver", "recovery_torture")
    wish = Wish("postgresql://queue", 1.0, 1, tmp_path, Rates(cuts=3.5))
    with run._cutting(places, wish, Tally()) as (queue_url, receiver_url, by_actors, left_out):
        assert ("postgresql://queue", "postgresql://receiver", 3.5) == (queue_url, receiver_url, by_actors)
    assert any("the server wants encryption" in why for why in left_out)


@pytest.mark.parametrize(("wanted", "image", "expected"), [(False, None, None), (True, None, "here"), (True, "i", "i")])
def test_which_server_is_ours(monkeypatch, wanted, image, expected):
    """In a container where an image is named, else on this machine if one is wanted at all."""
    monkeypatch.setattr(run, "embedded", lambda: contextlib.nullcontext("here"))
    monkeypatch.setattr(run, "contained", contextlib.nullcontext)
    with run.server_of_our_own(wanted=wanted, image=image) as server:
        assert expected == server
