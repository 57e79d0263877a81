"""After a fork the child has connections and threads of its own, and leaves the parent's alone, also when closing."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest
import sqlalchemy as sa

from recovery import AsyncQueue, Queue, Receiver
from recovery.transactions import READ
from tests.plugins.queues import AUTH, SOURCES, envelope

POOLED = 5
CHILD_SECONDS = 60.0


def in_child(work):
    """How a child process ends that does this: 0 if it raised nothing. One that hangs is killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + CHILD_SECONDS
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, 9)
            return os.waitpid(child, 0)[1]
        time.sleep(0.01)
    return ended[1]


def fill_pool(engine):
    """Have as many connections at rest as the pool keeps."""
    held = [engine.connect() for _ in range(POOLED)]
    for connection in held:
        connection.execute(sa.text("SELECT 1"))
        connection.close()


@pytest.mark.parametrize("kind", [Queue, Receiver])
def test_a_child_that_closes_does_not_close_the_parents(database_url, kind):
    """A child closes what it inherited; every connection of the parent's pool works on."""
    with kind.open(database_url) as opened:
        fill_pool(opened.engine)
        before = opened.engine.pool.checkedin()
        assert 0 == in_child(opened.close)
        held = [opened.engine.connect() for _ in range(POOLED)]
        assert [1] * POOLED == [connection.execute(sa.text("SELECT 1")).scalar_one() for connection in held]
        for connection in held:
            connection.close()
        assert before == opened.engine.pool.checkedin()


def test_a_child_that_closes_a_session_leaves_the_parents_transaction(database_url, clock):
    """The transaction that the parent has open on its session's connection is committed as if there were no child."""
    with Queue.open(database_url, allowed_sources=SOURCES, clock=clock) as queue, queue.session() as session:
        connection = session.connection()
        with connection.begin():
            queue.on(connection).receive(envelope(), AUTH)
            assert 0 == in_child(session.close)
        assert 1 == queue.counts().received


def test_threads_of_a_child_get_none_of_the_parents_connections(database_url):
    """However many threads of a child begin at once, none is handed what lay in the parent's pool."""
    with Queue.open(database_url) as queue:
        fill_pool(queue.engine)
        parents: set[int] = set()
        held = [queue.engine.connect() for _ in range(POOLED)]
        for connection in held:
            parents.add(id(connection.connection.driver_connection))
        for connection in held:
            connection.close()

        def work():
            barrier = threading.Barrier(POOLED)
            seen = []

            def look(line):
                seen.append(id(line.connection.driver_connection))
                barrier.wait()  # Nobody gives a connection back before everybody has one.

            def ask():
                barrier.wait()
                queue.run(look, READ)

            threads = [threading.Thread(target=ask) for _ in range(POOLED)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(seen) == POOLED
            assert not parents & set(seen)

        assert 0 == in_child(work)


def test_an_asynchronous_queue_works_in_a_child(database_url, clock):
    """A queue that the parent has used stores a message in the child too, and neither hangs."""

    async def opened():
        queue = await AsyncQueue.open(database_url, allowed_sources=SOURCES, clock=clock)
        await queue.counts()
        return queue

    async def story(queue, message_id):
        return (await queue.receive(envelope(message_id), AUTH)).duplicate

    with asyncio.Runner() as runner:
        queue = runner.run(opened())
        assert 0 == in_child(lambda: asyncio.run(story(queue, "m-1")))
        assert [True, False] == [runner.run(story(queue, name)) for name in ("m-1", "m-2")]
        assert 0 == in_child(lambda: asyncio.run(queue.close()))
        assert runner.run(story(queue, "m-2"))
        runner.run(queue.close())
