"""What ends a verb from outside, and what goes wrong while it is taken back: its connection is fit for nobody else."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import Queue, Receiver
from tests.plugins.queues import AUTH, SOURCES, envelope


class Stop(BaseException):
    """What a signal raises in the middle of anything; no Exception, as KeyboardInterrupt is none."""


def interrupted(error):
    """Messages of which the second one never comes."""
    yield envelope("m-1")
    raise error


@pytest.fixture
def queue(database_url, clock):
    """A queue on one connection, so that what one verb leaves behind is what the next one gets."""
    with Queue.open(database_url, allowed_sources=SOURCES, clock=clock) as opened:
        yield opened


@pytest.fixture
def closed(queue):
    """The connections that were closed and not given back."""
    seen = []
    sa.event.listen(queue.engine, "close", lambda driver, _: seen.append(driver))
    return seen


@pytest.mark.parametrize("how", ["queue", "session"])
def test_an_interrupt_goes_through_untouched(queue, closed, how):
    """It is raised as it is, nothing is stored, and its connection is closed: nobody knows what is still on it."""
    session = queue.session()
    verbs = queue if how == "queue" else session
    stop = Stop()
    with pytest.raises(Stop) as caught:
        verbs.receive_all(interrupted(stop), AUTH)
    assert caught.value is stop
    assert 1 == len(closed)
    assert not verbs.receive(envelope("m-1"), AUTH).duplicate
    assert 1 == queue.counts().received
    session.close()


def test_an_error_of_the_callers_own_keeps_the_connection(queue, closed):
    """An Exception is rolled back, and its connection is used again."""
    with pytest.raises(ZeroDivisionError):
        queue.receive_all(interrupted(ZeroDivisionError()), AUTH)
    assert [] == closed
    assert 0 == queue.counts().received


REPLY = ("reply:1", '"x"')


@pytest.fixture
def receiver(queue, clock):
    """A receiver on the same connections, whose effects run in the middle of a transaction."""
    with Receiver(queue.engine, clock=clock) as opened:
        yield opened


@pytest.mark.parametrize("error", [Stop(), ZeroDivisionError()], ids=["interrupt", "error"])
def test_in_the_middle_of_a_transaction(receiver, closed, error):
    """What was written before it is gone, and only an interrupt costs the connection."""

    def effect(*_):
        raise error

    with pytest.raises(type(error)) as caught:
        receiver.accept(*REPLY, effect)
    assert caught.value is error
    assert isinstance(error, Stop) == (1 == len(closed))
    assert (False, 0) == (receiver.seen(REPLY[0]), receiver.effect_count())
    assert not receiver.accept(*REPLY).duplicate


def test_a_rollback_that_fails(queue, receiver, closed):
    """The error that came first is the one that is raised, and the connection is closed: it may hold a transaction."""
    left = [None]

    def broken(_):
        if left:
            left.pop()
            raise OSError("the line broke")

    def effect(*_):
        raise ZeroDivisionError

    sa.event.listen(queue.engine, "rollback", broken)
    with pytest.raises(ZeroDivisionError):
        receiver.accept(*REPLY, effect)
    assert ([], 1) == (left, len(closed))
    assert (False, 0) == (receiver.seen(REPLY[0]), receiver.effect_count())
    assert not receiver.accept(*REPLY).duplicate


def test_a_session_outlives_its_connection(queue):
    """A held connection that is lost between two verbs is replaced by another one."""
    with queue.session() as session:
        first = session.connection()
        session.receive(envelope("m-1"), AUTH)
        assert session.connection() is first
        first.invalidate()
        assert session.receive(envelope("m-1"), AUTH).duplicate
        assert session.connection() is not first
