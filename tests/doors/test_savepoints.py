"""Verbs inside the caller's own transaction: what an error takes back, what it leaves, and whom it is told."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy as sa

from recovery import Misconfigured, Queue, StatementFailed, Unavailable, migrate, open_engine
from tests.plugins.queues import AUTH, SOURCES, envelope

REFUSE = {
    "sqlite": ("CREATE TRIGGER refuse BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'no'); END",),
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
}
LOSE = "CREATE TRIGGER lose BEFORE INSERT ON inbox BEGIN SELECT RAISE(ROLLBACK, 'no'); END"


@pytest.fixture
def engine(database_url):
    """An engine of the caller's, on a database with a table of the caller's."""
    engine = open_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE own (n integer)")
    yield engine
    engine.dispose()


@pytest.fixture
def queue(engine, clock):
    """A queue on that engine."""
    with Queue(engine, allowed_sources=SOURCES, clock=clock) as opened:
        yield opened


def own_rows(engine):
    """How many rows of the caller's are stored."""
    with engine.connect() as connection:
        return connection.exec_driver_sql("SELECT count(*) FROM own").scalar()


def execute(engine, *statements):
    """Run statements that are not looked into for parameters."""
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def test_a_refusal_takes_back_the_verb_alone(backend, engine, queue):
    """What the database refuses is StatementFailed, and what the caller wrote before and after it is stored."""
    execute(engine, *REFUSE[backend])
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO own VALUES (1)")
        with pytest.raises(StatementFailed) as caught:
            queue.on(connection).receive(envelope(), AUTH)
        connection.exec_driver_sql("INSERT INTO own VALUES (2)")
    assert "no" in str(caught.value.__cause__)
    assert (2, 0) == (own_rows(engine), queue.counts().received)


def test_a_transaction_that_the_database_ended(tmp_path, clock):
    """Where SQLite took the whole transaction back, nothing that follows in it may commit by itself."""
    url = f"sqlite:///{tmp_path}/lost.db"
    migrate(url)
    engine = open_engine(url)
    execute(engine, "CREATE TABLE own (n integer)", LOSE)
    with Queue(engine, allowed_sources=SOURCES, clock=clock) as queue:
        with engine.connect() as connection:
            connection.begin()
            connection.exec_driver_sql("INSERT INTO own VALUES (1)")
            bound = queue.on(connection)
            with pytest.raises((StatementFailed, Unavailable)):
                bound.receive(envelope(), AUTH)
            with pytest.raises(sa.exc.SQLAlchemyError):
                connection.exec_driver_sql("INSERT INTO own VALUES (2)")
            with pytest.raises(Unavailable):
                bound.receive(envelope(), AUTH)
        assert (0, 0) == (own_rows(engine), queue.counts().received)
    engine.dispose()


def test_a_connection_that_is_lost_already(postgres_database, clock):
    """A caller's connection that died before the first verb is Unavailable, and no error of the driver's."""
    engine = open_engine(postgres_database)
    with Queue(engine, allowed_sources=SOURCES, clock=clock) as queue:
        with engine.connect() as connection:
            connection.begin()
            connection.exec_driver_sql("SELECT 1")
            with psycopg.connect(postgres_database, autocommit=True) as line:
                line.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            with pytest.raises(Unavailable):
                queue.on(connection)
        assert 0 == queue.counts().received
    engine.dispose()


def test_an_engine_that_nobody_prepared(backend, database_url, queue, engine):
    """On SQLite a SAVEPOINT is none without our settings, and on(connection) says so; PostgreSQL needs none of them."""
    foreign = sa.create_engine(engine.url)
    with foreign.begin() as connection:
        if backend == "sqlite":
            with pytest.raises(Misconfigured, match="prepare_engine"):
                queue.on(connection)
        else:
            assert not queue.on(connection).receive(envelope(), AUTH).duplicate
    foreign.dispose()
    assert int(backend == "postgresql") == queue.counts().received
