"""What becomes of connections: shared by threads, held, lost, inherited by a child, cancelled, lent by the caller."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from recovery import (
    AsyncQueue,
    AuthContext,
    Busy,
    CommitUnknown,
    Envelope,
    Misconfigured,
    Queue,
    Unavailable,
    migrate,
    open_engine,
    prepare_engine,
)

AUTH = AuthContext("agent-a")
SOURCES = {"agent-a"}


def envelope(message_id: str) -> Envelope:
    """A message that asks for nothing much, within an hour."""
    return Envelope(message_id, "agent-a", {"n": 1}, time.time() + 3600)


@pytest.fixture
def url(empty_url: str) -> str:
    """A migrated database."""
    migrate(empty_url)
    return empty_url


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    """A queue on the database's own clock."""
    with Queue.open(url, allowed_sources=SOURCES, busy_seconds=1.0) as opened:
        yield opened


def test_a_child_opens_connections_of_its_own(queue: Queue) -> None:
    """After a fork, parent and child each claim another task, and the parent's session goes on as before."""
    queue.receive_all([envelope(f"m-{number}") for number in range(3)], AUTH)
    with queue.session() as session:
        first = session.claim("parent")
        child = os.fork()
        if child == 0:
            claimed = [session.claim("child"), queue.claim("child")]
            os._exit(0 if None not in claimed else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert first is not None
        session.finish(first, "done by the parent")
        assert queue.counts().open == {"pending": 0, "running": 2}


def test_threads_share_a_queue(queue: Queue) -> None:
    """Eight threads with one queue claim forty tasks, each of them once."""
    queue.receive_all([envelope(f"m-{number}") for number in range(40)], AUTH)
    claimed: list[str] = []

    def work(name: str) -> None:
        while (claim := queue.claim(name)) is not None:
            claimed.append(claim.task_id)

    threads = [threading.Thread(target=work, args=(f"worker-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == 40
    assert len(set(claimed)) == 40


def test_a_cancelled_verb_waits_for_its_transaction(url: str) -> None:
    """Cancelling an async verb raises CancelledError after its transaction ended; the queue goes on working."""

    async def story() -> int:
        async with AsyncQueue.open(url, allowed_sources=SOURCES) as opened:
            for number in range(20):
                task = asyncio.create_task(opened.receive(envelope(f"m-{number}"), AUTH))
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            acks = [await opened.receive(envelope(f"n-{number}"), AUTH) for number in range(5)]
            assert [False] * 5 == [ack.duplicate for ack in acks]
            return (await opened.counts()).received

    assert 5 <= asyncio.run(story()) <= 25


def test_connections_that_died_in_the_pool_are_replaced(postgres_server: object, new_database: object) -> None:
    """A verb whose pooled connection was cut before BEGIN runs on another one, without an error."""
    made = new_database()  # type: ignore[operator]
    if made.startswith("sqlite"):
        made = postgres_server.create_database()  # type: ignore[attr-defined]
    migrate(made)
    with Queue.open(made, allowed_sources=SOURCES) as queue:
        queue.receive(envelope("m-1"), AUTH)
        cut_all(made)
        assert queue.receive(envelope("m-2"), AUTH).duplicate is False


def cut_all(url: str) -> None:
    """End every other session of the database."""
    with psycopg.connect(url, autocommit=True) as line:
        line.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture
def server_url(postgres_server: object) -> Iterator[str]:
    """A migrated database on the server, for what only a server can do."""
    made: str = postgres_server.create_database()  # type: ignore[attr-defined]
    migrate(made)
    yield made
    postgres_server.drop_database(made)  # type: ignore[attr-defined]


def lose_the_answer(engine: sa.Engine, times: int) -> None:
    """From here on, the next `times` COMMITs are carried out, and their answers lost with the connection."""
    real = engine.dialect.do_commit
    left = [times]

    def commit(driver: object) -> None:
        real(driver)  # type: ignore[arg-type]
        if left[0] > 0:
            left[0] -= 1
            driver.dbapi_connection.close()  # type: ignore[attr-defined]
            raise psycopg.OperationalError("the connection was lost")

    engine.dialect.do_commit = commit  # type: ignore[method-assign, assignment]


def test_a_lost_answer_to_commit_is_asked_again_where_that_is_harmless(server_url: str) -> None:
    """A receive whose COMMIT was not answered is repeated by the library and finds itself stored."""
    with Queue.open(server_url, allowed_sources=SOURCES) as queue:
        lose_the_answer(queue.engine, 1)
        assert queue.receive(envelope("m-1"), AUTH).duplicate is True
        assert queue.counts().received == 1
        claim = queue.claim("worker")
        assert claim is not None
        lose_the_answer(queue.engine, 1)
        queue.finish(claim, {"sum": 5})
        assert queue.counts().ended["done"] == 1


def test_a_lost_answer_to_a_claim_is_unknown_and_not_failed(server_url: str) -> None:
    """A claim is never repeated blindly: CommitUnknown, one attempt spent, and the lease brings it back."""
    with Queue.open(server_url, allowed_sources=SOURCES) as queue:
        ack = queue.receive(envelope("m-1"), AUTH)
        lose_the_answer(queue.engine, 1)
        with pytest.raises(CommitUnknown):
            queue.claim("worker")
        row = queue.task(ack.task_id)
        assert row is not None
        assert (row.state, row.attempts) == ("running", 1)


def test_a_session_killed_in_the_middle_is_unavailable(server_url: str) -> None:
    """A connection lost before COMMIT was sent is Unavailable: nothing was stored."""
    with Queue.open(server_url, allowed_sources=SOURCES) as queue:
        task_id = queue.receive(envelope("m-1"), AUTH).task_id
        left = [1]

        def cut(*_: object) -> None:
            if left:
                left.pop()
                cut_all(server_url)

        sa.event.listen(queue.engine, "after_cursor_execute", cut)
        with pytest.raises(Unavailable):
            queue.cancel(task_id)
        assert queue.counts().open["pending"] == 1


def test_a_lock_that_is_not_had_in_time_is_busy(queue: Queue, url: str) -> None:
    """A writer that waits longer than the bound gets Busy on both backends, and nothing is stored."""
    ack = queue.receive(envelope("m-1"), AUTH)
    with Queue.open(url, allowed_sources=SOURCES) as other, other.session() as session:
        line = session.connection()
        with line.begin():
            other.on(line).cancel(ack.task_id)
            with pytest.raises(Busy):
                queue.cancel(ack.task_id)
        assert queue.cancel(ack.task_id) is False


def test_a_message_lives_or_dies_with_the_callers_rows(url: str) -> None:
    """Inside the caller's transaction a rollback takes the message with it, and a refusal only itself."""
    engine = open_engine(url)
    with Queue(engine, allowed_sources=SOURCES) as queue:
        with pytest.raises(ZeroDivisionError), engine.begin() as line:  # noqa: PT012 - the block is the transaction
            queue.on(line).receive(envelope("m-1"), AUTH)
            raise ZeroDivisionError
        assert queue.counts().received == 0
        with engine.begin() as line:
            bound = queue.on(line)
            bound.receive(envelope("m-2"), AUTH)
            with pytest.raises(ValueError, match="different content"):
                bound.receive(Envelope("m-2", "agent-a", {}, 1.0), AUTH)
        assert queue.counts().received == 1
    engine.dispose()


def test_what_cannot_be_joined_is_refused(url: str) -> None:
    """No transaction, AUTOCOMMIT, and an engine that we did not prepare are each refused with a sentence."""
    engine = open_engine(url)
    with Queue(engine, allowed_sources=SOURCES) as queue:
        with engine.connect() as line, pytest.raises(Misconfigured, match="begin a transaction"):
            queue.on(line)
        with engine.connect() as line:
            line.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
                queue.on(line)
    engine.dispose()
    foreign = sa.create_engine(engine.url)
    with pytest.raises(Misconfigured, match="prepare_engine"):
        Queue(foreign)
    with foreign.connect(), pytest.raises(Misconfigured, match="before its first connection"):
        prepare_engine(foreign)
    foreign.dispose()


def test_a_callers_prepared_engine_keeps_its_own_ways(server_url: str) -> None:
    """On a prepared engine the caller's own transactions are the driver's, at the level that the caller chose."""
    engine = prepare_engine(sa.create_engine(sa.make_url(server_url).set(drivername="postgresql+psycopg"), pool_size=1))
    with Queue(engine, allowed_sources=SOURCES) as queue:
        queue.receive(envelope("m-1"), AUTH)
        with pytest.raises(ZeroDivisionError), engine.begin() as line:  # noqa: PT012 - the block is the transaction
            line.exec_driver_sql("DELETE FROM journal")
            raise ZeroDivisionError
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as line, line.begin():
            assert line.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"
            with pytest.raises(Misconfigured, match="READ COMMITTED"):
                queue.on(line)
        with engine.connect() as line:
            assert line.exec_driver_sql("SELECT count(*) FROM journal").scalar() == 1
    engine.dispose()


def test_settings_of_the_role_do_not_win(server_url: str) -> None:
    """Our transactions are READ COMMITTED and durable whatever the database sets as its defaults."""
    with psycopg.connect(server_url, autocommit=True) as line:
        name = line.info.dbname
        line.execute(f'ALTER DATABASE "{name}" SET default_transaction_isolation = serializable')
        line.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    seen: list[tuple[object, ...]] = []
    with Queue.open(server_url, allowed_sources=SOURCES) as queue:

        @sa.event.listens_for(queue.engine, "commit")
        def look(line: sa.Connection) -> None:
            driver = line.connection.cursor()
            driver.execute(
                "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit'),"
                "current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')"
            )
            seen.append(tuple(driver.fetchone() or ()))

        queue.receive(envelope("m-1"), AUTH)
    assert [("read committed", "on", "10s", "30s")] == seen


def test_an_async_session_and_the_callers_async_transaction(server_url: str) -> None:
    """A held asynchronous session works, lends its connection, and a rollback there takes the message with it."""

    async def story() -> tuple[int, int]:
        async with AsyncQueue.open(server_url, allowed_sources=SOURCES) as opened, opened.session() as session:
            await session.receive(envelope("m-1"), AUTH)
            line = await session.connection()
            transaction = await line.begin()
            await opened.on(line).receive(envelope("m-2"), AUTH)
            inside = (await opened.on(line).counts()).received
            await transaction.rollback()
            return inside, (await session.counts()).received

    assert asyncio.run(story()) == (2, 1)


def test_an_async_session_on_threads(url: str) -> None:
    """A held asynchronous session claims and finishes on both backends."""

    async def story() -> int:
        async with AsyncQueue.open(url, allowed_sources=SOURCES) as opened, opened.session() as session:
            await session.receive(envelope("m-1"), AUTH)
            claim = await session.claim("worker")
            assert claim is not None
            await session.finish(claim, None)
            return (await session.counts()).ended["done"]

    assert asyncio.run(story()) == 1
