"""A session is one connection for one thread: what it refuses, so that two transactions never become one."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from recovery import Misconfigured, PayloadCollision, Queue
from tests.plugins.queues import AUTH, SOURCES, envelope

REFUSED = [envelope("m-1"), envelope("m-2"), envelope("m-2", payload={"other": 1})]


@pytest.fixture
def queue(database_url, clock):
    """A queue whose sessions are looked at."""
    with Queue.open(database_url, allowed_sources=SOURCES, clock=clock) as opened:
        yield opened


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "autocommit"])
def test_a_connection_at_autocommit_is_refused(queue, level):
    """A session whose connection the caller put at AUTOCOMMIT stores nothing, and says why."""
    with queue.session() as session:
        try:
            session.connection().execution_options(isolation_level=level)
        except (sa.exc.SQLAlchemyError, KeyError):
            return  # The dialect refused the level before we could.
        with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
            session.receive_all(REFUSED, AUTH)
    assert 0 == queue.counts().received


def test_a_verb_inside_a_verb_is_refused(queue):
    """Messages that ask the same session while they are received are refused; the next verb works as always."""

    def messages():
        session.counts()
        yield envelope("m-1")

    with queue.session() as session:
        with pytest.raises(Misconfigured, match="in the middle of a verb"):
            session.receive_all(messages(), AUTH)
        assert not session.receive(envelope("m-1"), AUTH).duplicate
    assert 1 == queue.counts().received


def test_closing_inside_a_verb_is_refused(queue):
    """The connection of a transaction that goes on is not given back."""

    def messages():
        session.close()
        yield envelope("m-1")

    with queue.session() as session:
        with pytest.raises(Misconfigured, match="in the middle of a verb"):
            session.receive_all(messages(), AUTH)
        assert 0 == session.counts().received


def test_a_second_thread_is_refused(queue):
    """While one thread is in a verb, another gets Misconfigured, and nothing of either is mixed."""
    inside, go_on = threading.Event(), threading.Event()

    def messages():
        inside.set()
        assert go_on.wait(60)
        yield from REFUSED

    refused: list[type[BaseException]] = []

    def first() -> None:
        try:
            session.receive_all(messages(), AUTH)
        except PayloadCollision as error:
            refused.append(type(error))

    with queue.session() as session:
        thread = threading.Thread(target=first)
        thread.start()
        assert inside.wait(60)
        try:
            with pytest.raises(Misconfigured, match="in the middle of a verb"):
                session.receive(envelope("m-9"), AUTH)
        finally:
            go_on.set()
            thread.join(60)
        assert [PayloadCollision] == refused
        assert 0 == session.counts().received
