"""A disk that fails at the worst moment: at COMMIT, and in the middle of the caller's transaction."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from recovery import CommitUnknown, Queue, Receiver, Unavailable, migrate, open_engine
from tests.faults.crashing import AUTH, ENVELOPE

FSYNC_FAILED = 10 | (4 << 8)
"""SQLITE_IOERR_FSYNC."""


@pytest.fixture
def engine(tmp_path):
    """An engine on a migrated file."""
    migrate(f"sqlite:///{tmp_path}/recovery.db")
    made = open_engine(f"sqlite:///{tmp_path}/recovery.db")
    yield made
    made.dispose()


@pytest.fixture
def queue(engine):
    """A queue in it."""
    return Queue(engine, allowed_sources={"agent-a"})


def fail_to_sync(engine):
    """From the next COMMIT on: the row is in the WAL, and SQLite says that it could not be synced, once."""
    real, module = engine.dialect.do_commit, engine.dialect.loaded_dbapi

    def do_commit(driver):
        engine.dialect.do_commit = real
        real(driver)
        error = module.OperationalError("disk I/O error")
        error.sqlite_errorcode = FSYNC_FAILED
        raise error

    engine.dialect.do_commit = do_commit


def test_a_commit_that_could_not_be_synced_is_unknown(queue, engine):
    """What may be there after a crash is never said to be rolled back."""
    task_id = queue.receive(ENVELOPE, AUTH).task_id
    fail_to_sync(engine)
    with pytest.raises(CommitUnknown):
        queue.claim("w")
    assert "running" == queue.task(task_id).state


def test_it_is_asked_again_where_that_is_harmless(queue, engine):
    """A receive that was stored all the same is found by its repeat."""
    fail_to_sync(engine)
    assert queue.receive(ENVELOPE, AUTH).duplicate


def fill(connection):
    """Write until there is no room, and catch that."""
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(sa.exc.OperationalError, match="full"):
        connection.exec_driver_sql("INSERT INTO callers VALUES (randomblob(1000000))")


def test_nothing_is_stored_behind_a_full_disk(engine):
    """An effect that caught a full disk and went on writing: no receipt, no confirmation, and none of what followed."""
    receiver = Receiver(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE callers (content BLOB)")

    def apply(connection, *_):
        fill(connection)
        with pytest.raises(sa.exc.PendingRollbackError):
            connection.exec_driver_sql("UPDATE fence_floor SET floor = 7")

    with pytest.raises(Unavailable):
        receiver.accept("reply:1", "1", apply)
    with engine.connect() as connection:
        assert 0 == connection.exec_driver_sql("SELECT floor FROM fence_floor").scalar_one()
    assert (False, 0) == (receiver.seen("reply:1"), receiver.effect_count())


def test_nothing_of_the_callers_is_stored_behind_a_full_disk(queue, engine):
    """In the caller's transaction a full disk is Unavailable, and no later statement commits by itself."""
    with engine.connect() as connection:
        connection.begin()
        bound = queue.on(connection)
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Unavailable):
            receive_until_full(bound)
        with pytest.raises(sa.exc.PendingRollbackError):
            connection.exec_driver_sql("UPDATE fence_floor SET floor = 7")
        with pytest.raises(Unavailable):
            bound.counts()
    with engine.connect() as connection:
        assert 0 == connection.exec_driver_sql("SELECT floor FROM fence_floor").scalar_one()
    assert 0 == queue.counts().received


def receive_until_full(bound):
    """Messages that take some room, one by one."""
    for number in range(200):
        bound.receive(dataclasses.replace(ENVELOPE, message_id=f"m-{number}", payload={"text": "t" * 20_000}), AUTH)
