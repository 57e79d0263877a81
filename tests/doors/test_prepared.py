"""Prepared statements on PostgreSQL: where they are kept, where none is, and what happens when they are gone."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from recovery import AsyncQueue, Queue, Receiver, StatementFailed, open_async_engine
from recovery.backend import prepared
from tests.plugins.queues import AUTH, SOURCES, envelope

ROUNDS = 3
POOL = 5
FORGET = "DEALLOCATE ALL"
OCCUPY = "PREPARE _pg3_{number} AS SELECT 1"


@pytest.fixture
def queue(postgres_database, clock):
    """A queue on PostgreSQL."""
    with Queue.open(postgres_database, allowed_sources=SOURCES, clock=clock) as opened:
        yield opened


@pytest.fixture
def session(queue):
    """One held connection of it."""
    with queue.session() as held:
        yield held


def driver(session):
    """The driver's own connection."""
    return session.connection().connection.driver_connection


def behind(session, *statements):
    """Tell the server something in the session's connection that neither the driver nor SQLAlchemy hears."""
    answers = [driver(session).pgconn.exec_(statement.encode()) for statement in statements]
    assert not [answer.error_message for answer in answers if answer.error_message]
    last = answers[-1]
    return [[last.get_value(row, column).decode() for column in range(last.nfields)] for row in range(last.ntuples)]


def kept(session):
    """How often each prepared statement ran by the plan that stays, and how often by another."""
    found = behind(session, "SELECT generic_plans, custom_plans FROM pg_prepared_statements ORDER BY name")
    return [(int(generic), int(custom)) for generic, custom in found]


def work(session, name):
    """Receive, claim and finish."""
    session.receive(envelope(name), AUTH)
    session.finish(session.claim("w"), 1)


def test_a_statement_is_prepared_once_and_has_one_plan(session):
    """From the first time on the same plan serves, in this and in every later transaction."""
    for number in range(ROUNDS):
        work(session, f"m-{number}")
    assert [(ROUNDS, 0)] * 3 == kept(session)


def test_a_connection_from_the_pool_keeps_them_too(queue):
    """A verb that takes a connection for itself finds what the last one prepared there."""
    for number in range(ROUNDS):
        queue.receive(envelope(f"m-{number}"), AUTH)
    with queue.session() as session:
        assert [(ROUNDS, 0)] == kept(session)


def test_an_asynchronous_connection_keeps_them_too(postgres_database, clock):
    """The same from an event loop."""

    async def main():
        opened = AsyncQueue.open(postgres_database, allowed_sources=SOURCES, clock=clock)
        async with opened as queue, queue.session() as session:
            for number in range(ROUNDS):
                await session.receive(envelope(f"m-{number}"), AUTH)
            connection = await session.connection()
            found = "SELECT generic_plans, custom_plans FROM pg_prepared_statements"
            return (await connection.exec_driver_sql(found)).fetchall()

    assert [(ROUNDS, 0)] == asyncio.run(main())


def test_reading_prepares_nothing(queue, session):
    """What is only read is planned for what is asked: the whole of a table may be."""
    work(session, "m")
    before = kept(session)
    session.counts()
    session.explain(queue.receive(envelope("m"), AUTH).task_id)
    assert before == kept(session)


def test_in_a_callers_transaction_nothing_is_prepared(queue):
    """There the settings are the caller's, and a plan made by them must not stay."""
    with queue.engine.connect() as connection:
        for number in range(ROUNDS):
            with connection.begin():
                queue.on(connection).receive(envelope(f"m-{number}"), AUTH)
        found = "SELECT count(*) FROM pg_prepared_statements"
        assert 0 == connection.exec_driver_sql(found).scalar()
        assert "on" == connection.exec_driver_sql("SHOW enable_seqscan").scalar()


@pytest.fixture
def receiver(queue):
    """A receiver in the same database."""
    return Receiver(queue.engine)


def test_an_effect_is_the_callers_own(queue, receiver):
    """It runs with the planner as it is, may send several statements at once, and leaves nothing prepared."""
    names = ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
    seen: list[Any] = []

    def effect(connection, identity, payload):
        connection.exec_driver_sql("CREATE TABLE mine (n integer); INSERT INTO mine VALUES (1)")
        seen.extend(connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names)
        seen.append(connection.exec_driver_sql("SELECT count(*) FROM mine").scalar())
        seen.append(connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar())

    assert not receiver.accept("reply:1", "{}", effect).duplicate
    assert ["auto", "on", "on", "on", "on", 1, 0] == seen


def test_an_effect_may_call_verbs(queue, receiver):
    """On the connection that it is given: both are stored, or neither."""

    def effect(connection, identity, payload):
        queue.on(connection).receive(envelope("from an effect"), AUTH)

    receiver.accept("reply:1", "{}", effect)
    assert queue.receive(envelope("from an effect"), AUTH).duplicate

    def refused(connection, identity, payload):
        queue.on(connection).receive(envelope("taken back"), AUTH)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        receiver.accept("reply:2", "{}", refused)
    assert not queue.receive(envelope("taken back"), AUTH).duplicate


def test_a_callers_connection_of_the_same_pool_prepares_nothing(queue):
    """Neither as SQLAlchemy's nor as the driver's own, after a verb has used it."""
    queue.receive(envelope("m"), AUTH)
    with queue.engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
        assert connection.connection.driver_connection.prepare_threshold is None
    pooled = queue.engine.raw_connection()
    assert pooled.driver_connection.prepare_threshold is None
    pooled.close()


def test_a_callers_asynchronous_connection_does_not_commit_by_itself(postgres_database, clock):
    """Also the driver's own, from the pool that a verb has used."""

    async def main():
        engine = open_async_engine(postgres_database)
        async with AsyncQueue(engine, allowed_sources=SOURCES, clock=clock) as queue:
            await queue.receive(envelope("m"), AUTH)
        async with engine.connect() as connection:
            raw: Any = (await connection.get_raw_connection()).driver_connection
            settings = raw.autocommit, raw.prepare_threshold
            await raw.execute("CREATE TABLE mine (n integer)")
            await raw.rollback()
            left = (await connection.exec_driver_sql("SELECT to_regclass('mine')")).scalar()
        await engine.dispose()
        return (*settings, left)

    assert (False, None, None) == asyncio.run(main())


@pytest.mark.parametrize("lost", ["forgotten", "occupied"])
def test_what_the_server_lost_is_no_error(session, lost):
    """A session that was exchanged or cleaned behind the driver's back costs one try, and nothing is prepared again."""
    work(session, "before")
    number = len(kept(session))
    behind(session, *([FORGET] if lost == "forgotten" else [OCCUPY.format(number=number)]))
    if lost == "occupied":
        session.cancel("none")  # Has no name yet, and would be given the one that is taken.
    for name in ("after", "and after"):
        work(session, name)
    assert 3 == session.counts().ended["done"]
    behind(session, FORGET)
    work(session, "last")
    assert [] == kept(session)


def test_what_the_server_lost_is_no_error_from_the_pool(queue):
    """The same where each verb takes a connection for itself."""
    queue.receive(envelope("m"), AUTH)
    with queue.session() as session:
        behind(session, FORGET)
    assert queue.receive(envelope("m"), AUTH).duplicate is True
    assert queue.receive(envelope("another"), AUTH).duplicate is False


def test_all_connections_of_a_pool_may_have_lost_theirs(queue, postgres_database):
    """The first try that meets it is the last one with prepared statements, on whatever connection the next one is."""
    sessions = [queue.session() for _ in range(POOL)]
    for session in sessions:
        session.receive(envelope("m"), AUTH)
    for session in sessions:
        session.close()
    with psycopg.connect(postgres_database, autocommit=True) as other:
        other.execute("ALTER TABLE inbox ALTER COLUMN task_id TYPE varchar")
    for number in range(2 * POOL):
        assert not queue.receive(envelope(f"after-{number}"), AUTH).duplicate


@pytest.mark.parametrize("state", ["26000", "42P05", "0A000"])
def test_what_only_looks_like_it_is_refused_once(queue, postgres_database, state):
    """A trigger may raise what it will: that is the database's refusal, and is not tried again."""
    with psycopg.connect(postgres_database, autocommit=True) as other:
        other.execute("CREATE SEQUENCE tries")
        other.execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('tries');"
            f" RAISE 'no' USING ERRCODE = '{state}'; END $$"
        )
        other.execute("CREATE TRIGGER no BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION no()")
        with pytest.raises(StatementFailed):
            queue.receive(envelope("m"), AUTH)
        with queue.engine.connect() as connection, connection.begin(), pytest.raises(StatementFailed):
            queue.on(connection).receive(envelope("m"), AUTH)
        assert (2,) == other.execute("SELECT last_value FROM tries").fetchone()


def test_a_column_of_another_type_is_no_error(session, postgres_database):
    """A migration that changes what a prepared statement answers is met by preparing it no more."""
    work(session, "before")
    with psycopg.connect(postgres_database, autocommit=True) as other:
        other.execute("ALTER TABLE tasks ALTER COLUMN payload TYPE varchar")
    work(session, "after")
    assert 2 == session.counts().ended["done"]


def test_after_a_refusal_they_are_prepared_anew(session):
    """A transaction that was taken back takes what the driver prepared with it; the next ones prepare it again."""
    work(session, "before")
    claim = session.claim("w")
    assert claim is None
    behind(session, "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$")
    behind(session, "CREATE TRIGGER no BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION no()")
    with pytest.raises(StatementFailed):
        session.receive(envelope("refused"), AUTH)
    behind(session, "DROP TRIGGER no ON inbox")
    work(session, "after")
    assert [(1, 0)] * 3 == kept(session)


def test_a_connection_that_is_not_direct_prepares_nothing(queue, monkeypatch):
    """Where the server's number differs from the one that was told at the beginning, something stands in between."""
    monkeypatch.setattr(prepared, "_is_direct", lambda connection: False)
    with queue.session() as session:
        work(session, "m")
        assert [] == kept(session)
        assert driver(session).prepare_threshold is None


def test_the_settings_are_the_transactions_own(queue, session):
    """What decides how a plan is made ends with the transaction."""
    work(session, "m")
    names = ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
    shown = [behind(session, f"SHOW {name}")[0][0] for name in names]
    assert ["auto", "on", "on", "on", "on"] == shown
    assert all(name in prepared.PLANNED for name in names)


def test_what_is_asked_once_is_asked_once(queue):
    """Whether a connection is direct is asked with its first writing transaction, and never again."""
    asked: list[object] = []
    real = prepared._is_direct

    def ask(connection):
        asked.append(connection)
        return real(connection)

    with pytest.MonkeyPatch.context() as patch, queue.session() as session:
        patch.setattr(prepared, "_is_direct", ask)
        for number in range(ROUNDS):
            work(session, f"m-{number}")
    assert 1 == len(asked)
