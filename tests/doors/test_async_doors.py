"""Ways in from an event loop: engines and connections of the wrong kind, retries, cancellation, a caller's engine."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from recovery import (
    AsyncQueue,
    AsyncReceiver,
    Busy,
    Misconfigured,
    PayloadCollision,
    Queue,
    Receipt,
    open_async_engine,
    open_engine,
    prepare_engine,
)
from recovery.async_transactions import to_its_end
from tests.plugins.queues import AUTH, SOURCES, envelope

SETTINGS = {"allowed_sources": SOURCES}
REFUSING = """
CREATE SEQUENCE tries;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') <= {last} THEN RAISE EXCEPTION 'try again' USING ERRCODE = '40P01'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON inbox FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""


def arm(url, last):
    """Have the database ask `last` times to try again."""
    with psycopg.connect(url, autocommit=True) as line:
        line.execute(REFUSING.format(last=last))


def own_engine(url):
    """The engine that asyncio wants for a database, made by the caller."""
    return open_engine(url) if url.startswith("sqlite") else open_async_engine(url)


async def disposed(engine):
    """Give up an engine of either kind."""
    if isinstance(engine, sa.Engine):
        engine.dispose()
    else:
        await engine.dispose()


def test_an_engine_of_the_other_kind_is_refused(database_url):
    """PostgreSQL wants an AsyncEngine and SQLite a plain one, and each sentence names what to give."""
    if database_url.startswith("sqlite"):
        made = create_async_engine(database_url.replace("sqlite:", "sqlite+aiosqlite:"))
        prepare_engine(made.sync_engine)
        with pytest.raises(Misconfigured, match="plain engine on SQLite"):
            AsyncQueue(made, **SETTINGS)
        return
    engine = open_engine(database_url)
    with pytest.raises(Misconfigured, match="open_async_engine"):
        AsyncQueue(engine, **SETTINGS)
    engine.dispose()


def test_a_callers_engine_outlives_the_queue(database_url, clock):
    """A queue and a receiver on the caller's own engine check it at the first verb, and leave it open when closed."""

    async def story():
        engine = own_engine(database_url)
        async with AsyncQueue(engine, clock=clock, **SETTINGS) as queue:
            await queue.receive(envelope(), AUTH)
        await queue.close()
        async with AsyncReceiver(engine, clock=clock) as receiver:
            first = await receiver.accept("reply:1", '"x"')
        async with AsyncQueue(engine, clock=clock, **SETTINGS) as again:
            received = (await again.counts()).received
        await disposed(engine)
        return first, received

    assert (Receipt("stored", "reply:1", duplicate=False), 1) == asyncio.run(story())


class InLoop:
    """A receiver whose accept is a coroutine."""

    def __init__(self, error=None):
        self.error, self.seen = error, []

    async def accept(self, reply_id, payload):
        await asyncio.sleep(0)
        self.seen.append(payload)
        if self.error is not None:
            raise self.error
        return Receipt("stored", reply_id, duplicate=False)


@pytest.mark.parametrize("error", [None, PayloadCollision("reply:1"), OSError("later")], ids=repr)
def test_a_receiver_in_the_loop(database_url, clock, error):
    """A receiver that is asynchronous itself is awaited where it is, and what it raises is recorded."""

    async def story():
        async with AsyncQueue.open(database_url, clock=clock, **SETTINGS) as queue:
            await queue.cancel((await queue.receive(envelope(), AUTH)).task_id)
            receiver = InLoop(error)
            done = await queue.dispatch_once(receiver)
            assert done is not None
            return done.state, len(receiver.seen), await queue.dispatch_once(receiver)

    expected = {type(None): "sent", PayloadCollision: "dead", OSError: "pending"}[type(error)]
    assert (expected, 1, None) == asyncio.run(story())


def test_a_receiver_in_the_loop_needs_one(database_url, clock):
    """A plain queue has no loop for it, and says so before it claims anything."""
    with Queue.open(database_url, clock=clock, **SETTINGS) as queue:
        queue.cancel(queue.receive(envelope(), AUTH).task_id)
        with pytest.raises(Misconfigured, match="AsyncQueue"):
            queue.dispatch_once(InLoop())
        assert 0 == queue.replies()[0].attempts


@pytest.mark.parametrize(("last", "duplicate"), [(4, False), (5, None)])
def test_deadlocks_do_not_block_the_loop(postgres_database, clock, last, duplicate):
    """The pause before another try lets the loop run; five refusals are Busy here too."""
    arm(postgres_database, last)

    async def story():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async with AsyncQueue.open(postgres_database, clock=clock, **SETTINGS) as queue:
            ticking = asyncio.create_task(tick())
            try:
                return (await queue.receive(envelope(), AUTH)).duplicate, ticks
            except Busy:
                return None, ticks
            finally:
                ticking.cancel()

    answer, ticks = asyncio.run(story())
    assert answer is duplicate
    assert ticks > 1


def test_what_cannot_be_joined_is_refused(postgres_database, clock):
    """Only an AsyncConnection that has begun can be joined, and the sentence says which of the two is wrong."""

    async def story():
        engine = open_async_engine(postgres_database)
        queue = AsyncQueue(engine, clock=clock, **SETTINGS)
        with pytest.raises(Misconfigured, match="wants an AsyncConnection"):
            queue.on(None)  # type: ignore[arg-type]
        with pytest.raises(Misconfigured, match="begin a transaction"):
            queue.on(engine.connect())
        async with engine.begin() as connection:
            await queue.on(connection).receive(envelope(), AUTH)
        received = (await queue.counts()).received
        await queue.close()
        await engine.dispose()
        return received

    assert 1 == asyncio.run(story())


def test_a_threads_connection_is_not_lent(backend, database_url, clock):
    """A session on SQLite keeps its connection to itself; on PostgreSQL it is lent."""

    async def story():
        async with AsyncQueue.open(database_url, clock=clock, **SETTINGS) as queue, queue.session() as session:
            return await session.connection()

    if backend == "sqlite":
        with pytest.raises(Misconfigured, match="lives in a thread"):
            asyncio.run(story())
    else:
        assert asyncio.run(story()) is not None


@pytest.mark.parametrize("error", [None, OSError("no")], ids=repr)
def test_a_cancelled_wait_ends_with_its_work(error):
    """However often it is cancelled, the work goes on to its end, and only then the cancellation."""
    ended = []

    async def work(go_on):
        await go_on.wait()
        ended.append(True)
        if error is not None:
            raise error

    async def story():
        go_on = asyncio.Event()
        waiting = asyncio.create_task(to_its_end(work(go_on)))
        for _ in range(3):
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(story())
    assert [True] == ended


def test_work_that_was_cancelled_itself():
    """Where the work itself was cancelled too, there is nothing more to wait for."""

    async def story():
        inner = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(to_its_end(inner))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        inner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(story())
