"""What actors do to themselves: they end at a COMMIT, and lose its answer."""

from __future__ import annotations

import os
import random
import time

import pytest

from recovery import AuthContext, CommitUnknown, Envelope, Queue
from recovery.testing.torture.company import forked
from recovery.testing.torture.dying import ENDED, Commits
from recovery.testing.torture.plan import Doom, Plan
from recovery.testing.torture.tally import ROWS_MAX, Tally

AUTH = AuthContext("agent-a")


def envelope(name):
    """A good message."""
    return Envelope(name, "agent-a", {}, 4e9)


@pytest.fixture
def plan(database, tmp_path):
    """A plan in which a thousand answers are lost in a second, which is as many as may be."""
    return Plan(database, database, database, tmp_path, 1.0, 1, time.time(), 0, 1000.0, False, Tally())  # noqa: FBT003


@pytest.fixture
def queue(database):
    """A queue that does not repeat what it was not told."""
    with Queue.open(database, allowed_sources={"agent-a"}) as queue:
        yield queue


class Chance(random.Random):
    """No chance: the same number every time."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def random(self):
        return self.number


def ended(be):
    """How a process ended that did nothing but this."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(be), 0)[1])


@pytest.mark.parametrize(("place", "stored"), [("before", 1), ("after", 2)])
def test_a_doomed_life_ends_at_its_commit(plan, database, place, stored):
    """At the second of the verb that was named, before it is sent or after it returned; other verbs do not count."""

    def be():
        doing = "claim"
        plan.tally.be_calm()
        with Queue.open(database, allowed_sources={"agent-a"}) as queue:
            plan.tally._memory[0] = 0
            Commits(plan, 0, Chance(1.0), Doom("receive", place, 2), lambda: doing).watch(queue.engine)
            queue.claim("w")
            doing = "receive"
            for number in range(9):
                queue.receive(envelope(f"m-{number}"), AUTH)

    assert ENDED[place] == ended(be)
    with Queue.open(database) as queue:
        assert stored == queue.counts().received


def test_calm_saves_the_doomed(plan, database):
    """Once the faults are over nobody ends, and no answer is lost."""
    plan.tally.be_calm()

    def be():
        with Queue.open(database, allowed_sources={"agent-a"}) as queue:
            Commits(plan, 0, Chance(0.0), Doom("receive", "before", 1), lambda: "receive").watch(queue.engine)
            queue.receive(envelope("m"), AUTH)
            os._exit(7)

    assert 7 == ended(be)


def test_a_lost_answer_is_unknown_and_stored(plan, queue):
    """The claim took effect, the error says that nobody knows, and it is counted."""
    queue.receive(envelope("m"), AUTH)
    Commits(plan, 3, Chance(0.0), None, lambda: "claim").watch(queue.engine)
    with pytest.raises(CommitUnknown):
        queue.claim("w")
    assert plan.tally.get(3, "cuts") >= 1
    plan.tally.be_calm()
    assert 1 == queue.counts().open["running"]


def test_a_tally_outlives_who_counts():
    """What a child counted is there after its end, and each row is its own."""
    tally = Tally()

    def be():
        tally.add(1, "cuts", 2)
        tally.put(ROWS_MAX - 1, "cuts", 40)
        os._exit(0)

    assert 0 == ended(be)
    assert (0, 2, 42) == (tally.get(0, "cuts"), tally.get(1, "cuts"), tally.total("cuts"))
    with pytest.raises(IndexError):
        tally.get(ROWS_MAX, "cuts")
    assert not tally.calm
    tally.be_calm()
    assert (True, 42) == (tally.calm, tally.total("cuts"))
