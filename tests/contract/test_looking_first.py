"""A verb that found nothing looks before it takes the write lock again: it finds all the same whatever came since."""

from __future__ import annotations

import pytest

from recovery import Settings
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.tasks import TaskRepository
from tests.plugins.queues import AUTH, SOURCES, envelope


def sent(queue, message_id="m-1", /, **changes):
    """The id of a new task."""
    return queue.receive(envelope(message_id, **changes), AUTH).task_id


@pytest.fixture
def quiet(queue):
    """The queue, after each verb that claims has found nothing."""
    assert (None, []) == (queue.claim("w"), queue.claim_batch("w", 3))
    assert (None, []) == (queue.claim_reply("d"), queue.claim_reply_batch("d", 3))
    return queue


def test_a_new_task(quiet):
    """One that came since is found, by either verb."""
    first = sent(quiet, "a")
    assert first == quiet.claim("w").task_id
    second = sent(quiet, "b")
    assert [second] == [claim.task_id for claim in quiet.claim_batch("w", 3)]


@pytest.mark.parametrize("queues", [("x",), ["x", "y"], ("y", "x"), ("default", "x")], ids=str)
@pytest.mark.parametrize("verb", ["claim", "claim_batch"])
def test_a_new_task_in_another_queue(quiet, verb, queues):
    """It is looked for in the queues that are named, and in no other."""
    task_id = sent(quiet, queue="x")
    if verb == "claim":
        assert quiet.claim("w") is None
        assert quiet.claim("w", ("y",)) is None
        assert task_id == quiet.claim("w", queues).task_id
    else:
        assert [[], []] == [quiet.claim_batch("w", 3), quiet.claim_batch("w", 3, ("y",))]
        assert [task_id] == [claim.task_id for claim in quiet.claim_batch("w", 3, queues)]


def test_a_task_that_becomes_due(quiet, clock):
    """It is found at the very moment when it may be tried again, and not before."""
    task_id = sent(quiet)
    quiet.fail(quiet.claim("w"), "no")
    assert quiet.claim("w") is None
    clock.advance(1.999)
    assert quiet.claim("w") is None
    clock.advance(0.001)
    assert task_id == quiet.claim("w").task_id


def test_a_lease_that_ends(quiet, clock):
    """It is found at the very moment when it is over, settled, and taken."""
    task_id = sent(quiet)
    quiet.claim("w")
    clock.advance(9.999)
    assert quiet.claim("w") is None
    clock.advance(0.001)
    again = quiet.claim("w")
    assert (task_id, 2) == (again.task_id, again.fence)


@pytest.mark.parametrize("queues", [("default",), ("y",)], ids=str)
def test_a_deadline_that_passes(quiet, clock, queues):
    """It is settled at the very moment when it is over, whichever queue is asked, though nothing is to be taken."""
    task_id = sent(quiet, deadline=1005.0)
    assert task_id == quiet.claim("w").task_id
    assert quiet.claim("w", queues) is None
    clock.advance(4.999)
    assert quiet.claim("w", queues) is None
    assert "running" == quiet.task(task_id).state
    clock.advance(0.001)
    assert quiet.claim("w", queues) is None
    assert "expired" == quiet.task(task_id).state


def test_a_new_reply(quiet):
    """One that came since is found, by either verb."""
    quiet.cancel(sent(quiet, "a"))
    first = quiet.claim_reply("d")
    assert 1 == first.fence
    quiet.cancel(sent(quiet, "b"))
    assert [1] == [held.fence for held in quiet.claim_reply_batch("d", 3)]


def test_a_delivery_that_becomes_due(quiet, clock):
    """A reply is found when it may be sent again, and when its lease is over; each at the very moment."""
    quiet.cancel(sent(quiet))
    quiet.settle(quiet.claim_reply("d"), delivered=False)
    assert quiet.claim_reply("d") is None
    clock.advance(1.999)
    assert quiet.claim_reply("d") is None
    clock.advance(0.001)
    assert 2 == quiet.claim_reply("d").fence
    assert quiet.claim_reply("d") is None
    clock.advance(9.999)
    assert quiet.claim_reply("d") is None
    clock.advance(0.001)
    assert 3 == quiet.claim_reply("d").fence


def test_looking_writes_nothing(quiet, stored):
    """As long as there is nothing, nothing is changed."""
    before = stored.contents()
    assert (None, []) == (quiet.claim("w"), quiet.claim_batch("w", 3, ("x", "y")))
    assert (None, []) == (quiet.claim_reply("d"), quiet.claim_reply_batch("d", 3))
    assert before == stored.contents()


AHEAD = 4_000_000_000.0
"""Later than the clock of this machine and of any server: whoever looks by another clock finds nothing due."""


@pytest.fixture
def ahead(queue, clock):
    """The queue, after each verb that claims has found nothing, at a time that has not come yet elsewhere."""
    clock.advance(AHEAD)
    assert (None, []) == (queue.claim("w"), queue.claim_batch("w", 3))
    assert (None, []) == (queue.claim_reply("d"), queue.claim_reply_batch("d", 3))
    return queue


def test_by_the_queues_own_clock(ahead):
    """A look goes by the clock that the rows were written by, of tasks and of replies."""
    first, second = (sent(ahead, name, deadline=2 * AHEAD) for name in ("a", "b"))
    assert first == ahead.claim("w").task_id
    assert [second] == [claim.task_id for claim in ahead.claim_batch("w", 3)]
    ahead.cancel(first)
    assert 1 == ahead.claim_reply("d").fence
    ahead.cancel(second)
    assert 1 == len(ahead.claim_reply_batch("d", 3))


def test_not_before_it_is_due(queue, clock, stored):
    """The look itself says no as long as by this clock nothing is due, and yes at the very moment."""
    settings = Settings(clock=clock, allowed_sources=SOURCES, backoff=2.0)
    task_id = sent(queue)
    queue.fail(queue.claim("w"), "no")
    assert (False, False) == looked(stored, settings)
    clock.advance(1.999)
    assert (False, False) == looked(stored, settings)
    clock.advance(0.001)
    assert (True, False) == looked(stored, settings)
    queue.cancel(task_id)
    assert (False, True) == looked(stored, settings)
    queue.settle(queue.claim_reply("d"), delivered=False)
    assert (False, False) == looked(stored, settings)
    clock.advance(2)
    assert (False, True) == looked(stored, settings)


def looked(stored, settings):
    """What a look at the tasks and one at the replies say; in another queue there is nothing at any time."""
    with stored.engine.connect() as connection:
        tasks, replies = TaskRepository(connection, settings), OutboxRepository(connection, settings)
        assert tasks.has_work("w", ("other",)) is False
        return tasks.has_work("w"), replies.has_work("w")
