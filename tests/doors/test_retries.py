"""When the database asks to try again, and when an answer to COMMIT is lost: how often, and what the caller is told."""

from __future__ import annotations

import time

import psycopg
import pytest
import sqlalchemy as sa

from recovery import Busy, CommitUnknown, Fenced, PayloadCollision, Queue, StatementFailed, Unavailable
from tests.plugins.queues import AUTH, SOURCES, envelope

REFUSING = """
CREATE SEQUENCE tries;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n bigint := nextval('tries');
BEGIN
    IF n BETWEEN {first} AND {last} THEN RAISE EXCEPTION 'try again' USING ERRCODE = '{state}'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON inbox FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""
STATES = pytest.mark.parametrize("state", ["40001", "40P01"])
TRIES = 5


@pytest.fixture
def queue(postgres_database, clock):
    """A queue on PostgreSQL."""
    with Queue.open(postgres_database, allowed_sources=SOURCES, clock=clock) as opened:
        yield opened


@pytest.fixture
def refuse(postgres_database):
    """Has the database refuse the tries to store a message from one number to another, and tells how many there were.

    A sequence counts them, since it alone is not taken back by a rollback.
    """
    with psycopg.connect(postgres_database, autocommit=True) as line:

        def arm(state, last, first=1):
            line.execute(REFUSING.format(state=state, first=first, last=last))
            return lambda: next(line.execute("SELECT last_value FROM tries"))[0]

        yield arm


@pytest.fixture
def lose(queue):
    """Has the answers to the next COMMITs get lost, after something else has happened meanwhile."""
    real = queue.engine.dialect.do_commit

    def arm(times=1, meanwhile=lambda: None):
        left = [None] * times

        def do_commit(connection):
            real(connection)
            if left:
                left.pop()
                connection.dbapi_connection.close()
                meanwhile()
                raise psycopg.OperationalError("the line broke")

        queue.engine.dialect.do_commit = do_commit

    return arm


def take_longer(queue):
    """Have each try take longer than the bound of one millisecond."""
    sa.event.listen(queue.engine, "checkout", lambda *_: time.sleep(0.01))


@STATES
def test_a_deadlock_is_tried_again_to_success(queue, refuse, state):
    """Four refusals in a row are the library's own affair: the fifth try stores the message, once."""
    tries = refuse(state, TRIES - 1)
    assert not queue.receive(envelope(), AUTH).duplicate
    assert (TRIES, 1) == (tries(), queue.counts().received)


@STATES
def test_five_deadlocks_are_busy(queue, refuse, state):
    """The fifth refusal is the last one: Busy, with the driver's error as its cause, and nothing is stored."""
    tries = refuse(state, TRIES)
    with pytest.raises(Busy, match="five times") as caught:
        queue.receive(envelope(), AUTH)
    cause = caught.value.__cause__
    assert isinstance(cause, psycopg.Error)
    assert state == cause.sqlstate
    assert (TRIES, 0) == (tries(), queue.counts().received)
    assert not queue.receive(envelope(), AUTH).duplicate


def test_no_other_refusal_is_tried_again(queue, refuse):
    """What is neither a deadlock nor a serialization failure is told at the first try."""
    tries = refuse("23514", TRIES)
    with pytest.raises(StatementFailed):
        queue.receive(envelope(), AUTH)
    assert 1 == tries()


@STATES
def test_the_callers_transaction_is_not_tried_again(queue, refuse, state):
    """Inside the caller's transaction one refusal is Busy at once, with a sentence that says whose turn it is."""
    tries = refuse(state, TRIES)
    with queue.engine.begin() as connection, pytest.raises(Busy, match="your whole transaction"):
        queue.on(connection).receive(envelope(), AUTH)
    assert (1, 0) == (tries(), queue.counts().received)


def test_the_wait_bounds_the_tries(postgres_database, refuse):
    """With next to no time to wait there is no second try."""
    tries = refuse("40P01", TRIES)
    with Queue.open(postgres_database, allowed_sources=SOURCES, busy_seconds=0.001) as queue:
        take_longer(queue)
        with pytest.raises(Busy, match="five times"):
            queue.receive(envelope(deadline=4e9), AUTH)
        assert 1 == tries()


def test_a_doubt_stays_when_the_repeat_is_refused(queue, refuse, lose):
    """After a lost answer, four deadlocks tell nothing of what is stored: CommitUnknown, and the message is there."""
    tries = refuse("40P01", TRIES, first=2)
    lose()
    with pytest.raises(CommitUnknown):
        queue.receive(envelope(), AUTH)
    assert (TRIES, 1) == (tries(), queue.counts().received)


def test_a_doubt_stays_when_the_server_is_gone(queue, lose):
    """After a lost answer, a server that cannot be reached tells nothing of what is stored."""
    is_up: list[bool] = []

    def dead(*_):
        if not is_up:
            raise psycopg.OperationalError("nobody answers")

    lose(meanwhile=lambda: sa.event.listen(queue.engine, "do_connect", dead))
    with pytest.raises(CommitUnknown) as caught:
        queue.receive(envelope(), AUTH)
    assert isinstance(caught.value.__cause__, Unavailable)
    is_up.append(True)
    assert queue.receive(envelope(), AUTH).duplicate


def test_five_lost_answers_are_unknown(queue, lose):
    """A line that breaks at each COMMIT ends in CommitUnknown after five tries, and the message is there once."""
    lose(times=TRIES)
    with pytest.raises(CommitUnknown):
        queue.receive(envelope(), AUTH)
    assert 1 == queue.counts().received
    lose(times=TRIES - 1)
    assert queue.receive(envelope("other"), AUTH).duplicate


def test_what_the_repeat_learns_is_told(postgres_database, queue, lose, clock):
    """A claim that was cancelled meanwhile is Fenced, not unknown: the repeat has seen what is stored."""
    task_id = queue.receive(envelope(), AUTH).task_id
    claim = queue.claim("w")
    with Queue.open(postgres_database, allowed_sources=SOURCES, clock=clock) as other:
        lose(meanwhile=lambda: other.cancel(task_id))
        with pytest.raises(Fenced):
            queue.renew(claim)


def test_a_collision_is_told_in_doubt_too(queue, lose, stored_elsewhere):
    """The same identity with other content, stored meanwhile, is a collision and no doubt."""
    lose(meanwhile=stored_elsewhere)
    with pytest.raises(PayloadCollision):
        queue.receive(envelope(), AUTH)


@pytest.fixture
def stored_elsewhere(postgres_database):
    """Has another sender's content take the place of the message."""

    def change():
        with psycopg.connect(postgres_database, autocommit=True) as line:
            line.execute("UPDATE inbox SET fingerprint = 'v1:other'")

    return change


def test_no_time_to_look_for_a_live_connection(postgres_database, clock):
    """With no time for another try, a connection that died in the pool is Unavailable; the next verb gets a new one."""
    settings = {"allowed_sources": SOURCES, "clock": clock, "busy_seconds": 0.001}
    with Queue.open(postgres_database, **settings) as queue:
        queue.counts()
        with psycopg.connect(postgres_database, autocommit=True) as line:
            line.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        take_longer(queue)
        with pytest.raises(Unavailable, match="nothing was stored"):
            queue.receive(envelope(), AUTH)
        assert 0 == queue.counts().received
