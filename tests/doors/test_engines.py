"""Engines and their pools: which are refused, how long they wait, what they survive, what they never show."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback

import pytest
import sqlalchemy as sa

from recovery import (
    AsyncQueue,
    Busy,
    Misconfigured,
    Queue,
    Receiver,
    RecoveryError,
    Unavailable,
    migrate,
    open_async_engine,
    open_engine,
    prepare_engine,
)
from recovery.backend import is_database_error
from tests.plugins.queues import AUTH, SOURCES, Plain, envelope

POOL_MAX = 15
"""Five that SQLAlchemy's pool keeps, and ten on top."""

SECRET = "hunter" + "2"


@pytest.fixture
def engine(database_url):
    """An engine of the caller's own, before anything was done to it."""
    made = sa.create_engine(driver_url(database_url))
    yield made
    made.dispose()


def driver_url(url):
    """The URL with psycopg 3 in it, where it is PostgreSQL's."""
    parsed = sa.make_url(url)
    return parsed if parsed.host is None else parsed.set(drivername="postgresql+psycopg")


def test_an_option_engine_is_not_prepared(engine):
    """What execution_options() returned is refused: its own events would not be the engine's. Taken later, it works."""
    with pytest.raises(Misconfigured, match="the engine itself"):
        prepare_engine(engine.execution_options(logging_token="x"))
    with pytest.raises(Misconfigured, match="prepare_engine"):
        Queue(engine)
    prepare_engine(engine)
    queue = Queue(engine.execution_options(logging_token="x"), allowed_sources=SOURCES)
    with pytest.raises(ValueError, match="different content"):
        queue.receive_all([envelope("m-1"), envelope("m-2"), envelope("m-2", payload={"other": 1})], AUTH)
    assert 0 == queue.counts().received


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "autocommit"])
def test_an_engine_at_autocommit_is_refused(engine, level):
    """An engine at AUTOCOMMIT is refused before it connects, in whatever case the level was written."""
    with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
        prepare_engine(engine.execution_options(isolation_level=level))
    with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
        prepare_engine(sa.create_engine(engine.url, isolation_level=level))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"connect_args": {"autocommit": True}}, {}),
        ({}, {"isolation_level": "autocommit"}),
        ({}, {"isolation_level": "AUTOCOMMIT"}),
    ],
)
def test_a_callers_connection_at_autocommit_is_refused(postgres_database, arguments, options):
    """On an engine that is not prepared too: Misconfigured, whether the driver or the connection was told."""
    engine = sa.create_engine(driver_url(postgres_database), **arguments)
    with Queue.open(postgres_database, allowed_sources=SOURCES) as queue, engine.connect() as plain:
        connection = plain.execution_options(**options)
        connection.begin()
        with pytest.raises(Misconfigured, match=r"(?i)autocommit"):
            queue.on(connection).receive(envelope(), AUTH)
    engine.dispose()


def fail_to_store(engine):
    """From here on the database refuses every new task."""
    statements = {
        "sqlite": ["CREATE TRIGGER t BEFORE INSERT ON tasks BEGIN SELECT raise(abort, 'no'); END"],
        "postgresql": [
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
            "CREATE TRIGGER t BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION f()",
        ],
    }
    with engine.begin() as connection:
        for statement in statements[engine.dialect.name]:
            connection.exec_driver_sql(statement)


def test_no_traceback_and_no_log_shows_a_payload(queue, stored, caplog):
    """A refused statement's parameters stay out of the whole chain of causes, and out of SQLAlchemy's own log."""
    fail_to_store(stored.engine)
    with caplog.at_level(logging.INFO, "sqlalchemy"), pytest.raises(RecoveryError) as caught:
        queue.receive(envelope(payload={"password": SECRET}), AUTH)
    text = "".join(traceback.format_exception(caught.value))
    cause = caught.value.__cause__
    assert cause is not None
    assert is_database_error(cause)
    assert SECRET not in text + caplog.text


def test_a_callers_own_engine_shows_no_payload_of_ours(postgres_database):
    """On an engine that is not prepared, an error of a verb hides its parameters all the same."""
    engine = sa.create_engine(driver_url(postgres_database))
    fail_to_store(engine)
    with Queue.open(postgres_database, allowed_sources=SOURCES) as queue, engine.begin() as connection:
        with pytest.raises(RecoveryError) as caught:
            queue.on(connection).receive(envelope(payload={"password": SECRET}), AUTH)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    engine.dispose()


def test_the_wait_for_a_connection_is_bounded(database_url):
    """Where every connection is in use, a verb is Busy after busy_seconds, not after the pool's own ten."""
    with Queue.open(database_url, busy_seconds=0.2) as queue:
        held = [queue.engine.connect() for _ in range(POOL_MAX)]
        start = time.monotonic()
        with pytest.raises(Busy):
            queue.counts()
        assert time.monotonic() - start < 5
        for connection in held:
            connection.close()
        assert 0 == queue.counts().received


def test_the_wait_for_an_asynchronous_connection_is_bounded(postgres_database):
    """The same for asyncio, with an engine that was told so."""

    async def story():
        engine = open_async_engine(postgres_database, pool_size=1, busy_seconds=0.2)
        queue = AsyncQueue(engine)
        held = [await engine.connect() for _ in range(11)]
        start = time.monotonic()
        with pytest.raises(Busy):
            await queue.counts()
        for connection in held:
            await connection.close()
        await engine.dispose()
        return time.monotonic() - start

    assert asyncio.run(story()) < 5


def test_a_whole_pool_of_dead_connections_is_replaced(postgres_database):
    """However many connections died in the pool, the next verb works: one of them tells of the others."""
    with Queue.open(postgres_database) as queue:
        held = [queue.engine.connect() for _ in range(5)]
        for connection in held:
            connection.execute(sa.text("SELECT 1"))
        for connection in held:
            connection.close()
        other = open_engine(postgres_database)
        with other.connect() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        other.dispose()
        assert 0 == queue.counts().received


def test_a_lost_connection_stays_unavailable(postgres_database):
    """Each further verb on a connection that was lost in the caller's transaction says the same, and so does on()."""
    engine = open_engine(postgres_database)
    queue = Queue(engine, allowed_sources=SOURCES)
    with engine.connect() as connection:
        connection.begin()
        bound = queue.on(connection)
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with engine.connect() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")
        for _ in range(2):
            with pytest.raises(Unavailable):
                bound.receive(envelope(), AUTH)
        with pytest.raises(Unavailable):
            queue.on(connection)
    engine.dispose()


def test_the_callers_waits_stay_the_callers(migrated_file):
    """On SQLite our busy timeout ends with our transaction: the caller's own, pooled or on a session, has its own."""
    engine = prepare_engine(sa.create_engine(migrated_file))
    queue = Queue(engine, busy_seconds=0.05)
    queue.counts()
    with engine.connect() as connection:
        assert 10_000 == connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    raw = engine.raw_connection()
    assert (10_000,) == raw.cursor().execute("PRAGMA busy_timeout").fetchone()
    raw.close()
    with queue.session() as session:
        session.counts()
        with session.connection() as connection:
            assert 10_000 == connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    engine.dispose()


@pytest.mark.parametrize(
    "how", [open_engine, lambda url: prepare_engine(sa.create_engine(url))], ids=["ours", "theirs"]
)
def test_every_connection_to_a_file_waits_for_the_disk(migrated_file, how):
    """On SQLite a commit is on the disk before it is answered, on each connection, also on one that was lent."""
    engine = how(migrated_file)
    with engine.connect() as one, engine.connect() as two:
        levels = [line.exec_driver_sql("PRAGMA synchronous").scalar_one() for line in (one, two)]
        two.rollback()
    with Queue(engine, allowed_sources=SOURCES) as queue, queue.session() as session:
        session.receive(envelope(), AUTH)
        levels.append(session.connection().exec_driver_sql("PRAGMA synchronous").scalar_one())
        session.connection().rollback()
    engine.dispose()
    assert [2, 2, 2] == levels


@pytest.fixture
def migrated_file(tmp_path):
    """The URL of a migrated SQLite file."""
    url = f"sqlite:///{tmp_path}/recovery.db"
    migrate(url)
    return url


def test_what_is_closed_is_closed(door, database_url):
    """A closed queue or receiver refuses every verb, opens no connection again, and may be closed twice."""
    queue, receiver = door.queue(database_url), door.receiver(database_url)
    for opened in (queue, receiver):
        opened.close()
        opened.close()
    with pytest.raises(Misconfigured, match="closed"):
        queue.counts()
    with pytest.raises(Misconfigured, match="closed"):
        queue.session()
    with pytest.raises(Misconfigured, match="closed"):
        receiver.seen("reply:1")
    assert 0 == queue.engine.pool.checkedin()


def test_a_closed_session_is_closed(queue):
    """A closed session refuses every verb, and its queue goes on."""
    session = queue.session()
    if isinstance(queue, Plain):
        session = Plain(queue.loop, session)
    session.counts()
    for _ in range(2):
        session.close()
    with pytest.raises(Misconfigured, match="closed"):
        session.counts()
    assert 0 == queue.counts().received


def test_a_connection_that_an_effect_closed_is_whole(database_url):
    """Its next borrower begins, writes and commits on it as if nothing had been."""
    engine = open_engine(database_url, pool_size=1)
    receiver = Receiver(engine)
    with pytest.raises(RecoveryError):
        receiver.accept("reply:1", "1", lambda connection, *_: connection.close())
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE fence_floor SET floor = 7")
    with engine.connect() as connection:
        assert 7 == connection.exec_driver_sql("SELECT floor FROM fence_floor").scalar_one()
    engine.dispose()
