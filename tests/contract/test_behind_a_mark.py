"""How far a connection has looked: what comes in a little behind that is found in its turn, what is far behind later.

Only where claims are composed has a connection such marks. Elsewhere the same rows are taken in their order at once.
"""

from __future__ import annotations

import math

import pytest
import sqlalchemy as sa

from recovery import Queue, Settings
from recovery.repositories import claiming
from recovery.repositories.leases import leased_replies, leased_tasks
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.tasks import TaskRepository
from tests.contract.cells import DIFFERENT, REPLY_IDS, TASK_IDS, name_of
from tests.plugins.queues import AUTH, envelope

ALL = Settings().tables
TASKS, REPLIES = leased_tasks(ALL), leased_replies(ALL)


@pytest.fixture
def queue(database_url, clock):
    """What stores; what is looked at is one connection of another engine, so that one door is enough."""
    with Queue.open(database_url, clock=clock, **DIFFERENT) as opened:
        yield opened


class Looking:
    """One connection that claims; its marks are kept until the test lets go of them."""

    def __init__(self, connection, clock):
        self.connection = connection
        self.settings = Settings(clock=clock, **DIFFERENT)

    def keep(self):
        """From here on no mark is forgotten because a second went by, however slow this machine is."""
        for leased in (TASKS, REPLIES):
            claiming._kept_marks(self.connection, leased).whole_at = math.inf

    def let_go(self):
        """A second went by."""
        for leased in (TASKS, REPLIES):
            claiming._kept_marks(self.connection, leased).whole_at = 0.0

    def tasks(self):
        """The tasks on this connection."""
        return TaskRepository(self.connection, self.settings)

    def replies(self):
        """The replies on it."""
        return OutboxRepository(self.connection, self.settings)

    def move(self, leased, name, **values):
        """Give a row other times, as a transaction that took long to commit would leave them."""
        ids = TASK_IDS if leased is TASKS else REPLY_IDS
        self.connection.execute(sa.update(leased.table).where(leased.key == ids[name]).values(**values))


@pytest.fixture
def looking(stored, clock):
    """The connection."""
    with stored.engine.begin() as connection:
        one = Looking(connection, clock)
        one.keep()
        yield one


QUEUES = {"one": ("default",), "several": ("default", "mail")}
WAYS = {
    "claim": lambda looking, _, queues: looking.tasks().claim("w", queues),
    "claim_batch": lambda looking, _, queues: looking.tasks().claim_batch("w", 1, queues)[0],
    "finish_and_claim": lambda looking, held, queues: looking.tasks().finish_and_claim(held, 1, queues),
}


@pytest.fixture
def passed(queue, clock, stored, looking):
    """Three tasks, of which the first is held; the second came in `behind` seconds before it, the third after it."""

    def make(behind, queues):
        for name in ("a", "b", "c"):
            queue.receive(envelope(name, priority=4), AUTH)
        looking.move(TASKS, "b", available_at=1001.0)
        looking.move(TASKS, "c", available_at=1000.6)
        held = looking.tasks().claim("w", queues)
        assert "a" == name_of(held)
        looking.move(TASKS, "b", available_at=1000.0 - behind)
        clock.advance(1)
        return held

    return make


@pytest.mark.parametrize("queues", QUEUES.values(), ids=QUEUES.keys())
@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS.keys())
def test_a_little_behind(looking, passed, call, queues):
    """A task that became due a moment before the last one that was taken comes next, before what became due later."""
    held = passed(claiming.MARGIN_SECONDS, queues)
    assert "b" == name_of(call(looking, held, queues))


@pytest.mark.parametrize("queues", QUEUES.values(), ids=QUEUES.keys())
@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS.keys())
def test_far_behind(looking, passed, backend, call, queues):
    """One that became due long before is passed over as long as there is another; then the whole is looked at."""
    first, second = ("c", "b") if backend == "postgresql" else ("b", "c")
    held = passed(60, queues)
    taken = call(looking, held, queues)
    assert first == name_of(taken)
    assert second == name_of(call(looking, taken, queues))


@pytest.mark.parametrize("queues", QUEUES.values(), ids=QUEUES.keys())
@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS.keys())
def test_far_behind_after_a_second(looking, passed, call, queues):
    """After a second it comes in its turn."""
    held = passed(60, queues)
    looking.let_go()
    assert "b" == name_of(call(looking, held, queues))


@pytest.fixture
def two_held(queue, clock, looking):
    """A task that is held beside one that was held before, and two that can be taken."""
    queue.receive(envelope("a", priority=9), AUTH)
    for name in ("b", "c", "d"):
        queue.receive(envelope(name), AUTH)
    lost = looking.tasks().claim("v")
    clock.advance(1)
    held = looking.tasks().claim("w")
    assert ("a", "b") == (name_of(lost), name_of(held))
    return held


@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS.keys())
def test_a_lease_that_ends_later(looking, two_held, clock, call):
    """A lease that ends after the last look is settled before anything else is taken, though there is enough."""
    clock.advance(29)
    assert "a" == name_of(call(looking, two_held, ("default",)))


@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS.keys())
def test_a_lease_that_ended_at_the_last_look(looking, two_held, clock, call):
    """It may have been written a moment after that look, and is settled."""
    looking.move(TASKS, "a", lease_until=1001.0)
    clock.advance(1)
    assert "a" == name_of(call(looking, two_held, ("default",)))


@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS.keys())
def test_a_lease_that_ended_long_before(looking, two_held, clock, backend, call):
    """One that ended before the last look, which nobody saw then, is passed over as long."""
    looking.move(TASKS, "a", lease_until=900.0)
    clock.advance(1)
    hidden = backend == "postgresql"
    taken = call(looking, two_held, ("default",))
    assert ("c" if hidden else "a") == name_of(taken)
    looking.let_go()
    assert ("a" if hidden else "c") == name_of(call(looking, taken, ("default",)))


def test_replies(queue, clock, looking, backend):
    """The same of replies."""
    for name in ("a", "b", "c", "d"):
        queue.receive(envelope(name), AUTH)
        queue.cancel(TASK_IDS[name])
    for name, at in (("b", 1001.0), ("c", 1000.6), ("d", 1000.7)):
        looking.move(REPLIES, name, available_at=at)
    assert "a" == name_of(looking.replies().claim_reply("d"))
    looking.move(REPLIES, "b", available_at=1000.0 - claiming.MARGIN_SECONDS)
    clock.advance(1)
    assert "b" == name_of(looking.replies().claim_reply("d"))
    looking.move(REPLIES, "d", available_at=900.0)
    hidden = backend == "postgresql"
    assert ("c" if hidden else "d") == name_of(looking.replies().claim_reply("d"))
    assert ("d" if hidden else "c") == name_of(looking.replies().claim_reply("d"))


def test_tasks_and_replies_apart(queue, clock, looking):
    """How far it has looked among the ones says nothing of the others."""
    for name in ("a", "b", "c"):
        queue.receive(envelope(name), AUTH)
    for name in ("a", "c"):
        queue.cancel(TASK_IDS[name])
    assert "a" == name_of(looking.replies().claim_reply("d"))
    clock.advance(60)
    assert "b" == name_of(looking.tasks().claim("w"))
    assert "c" == name_of(looking.replies().claim_reply("e"))
    assert ["pending", "sending"] == [one.state for one in looking.replies().replies()]


@pytest.fixture
def marks(monkeypatch):
    """Marks, and the time that they are kept by."""
    read = [100.0]
    monkeypatch.setattr(claiming, "time", type("Time", (), {"monotonic": staticmethod(lambda: read[0])}))
    found = claiming.Marks()
    found.forget_in_time()
    found.probes["default", 0] = found.looked_until = 5.0
    return found, read


def test_marks_are_forgotten_after_a_second(marks):
    """Not before, at that moment, and then for another second."""
    found, read = marks
    for seconds, are_none in ((100.999, False), (101.0, True), (101.5, True)):
        read[0] = seconds
        found.forget_in_time()
        assert are_none is found.are_none
    found.looked_until = 6.0
    read[0] = 101.999
    found.forget_in_time()
    assert found.are_none is False
    assert (6.0, {}) == (found.looked_until, found.probes)
