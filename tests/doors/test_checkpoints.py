"""A SQLite log that cannot be emptied: it is tried seldom, and as ever when nobody is in the way any more."""

from __future__ import annotations

import contextlib
import sqlite3
from uuid import uuid4

import pytest
import sqlalchemy as sa

from recovery import Queue, migrate, open_engine, prepare_engine
from recovery.backend import checkpoints
from recovery.backend.checkpoints import PAGES
from tests.plugins.queues import AUTH, SOURCES, envelope

LOOK_EVERY, MESSAGES = 4, 20


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A migrated file, whose log is looked at after every fourth transaction."""
    monkeypatch.setattr(checkpoints, "LOOK_EVERY", LOOK_EVERY)
    migrate(f"sqlite:///{tmp_path}/x.db")
    return tmp_path / "x.db"


@contextlib.contextmanager
def reader(file):
    """Somebody who reads and stays."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as line:
        line.execute("BEGIN")
        line.execute("SELECT count(*) FROM tasks").fetchall()
        yield


def pages(session):
    """At how many pages the session's connection tries to empty the log."""
    with session.engine.connect() as connection:
        return connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar()


def log_pages(file):
    """How many pages the log has, and how many of them are in the file already, after an attempt to empty it."""
    with contextlib.closing(sqlite3.connect(file)) as line:
        return line.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1:]


def work(queue, rounds):
    """So many transactions, each of some hundred pages."""
    for _ in range(rounds):
        queue.receive_all([envelope(uuid4().hex, payload={"text": "x" * 60_000}) for _ in range(MESSAGES)], AUTH)


@pytest.fixture
def queue(file):
    """A queue with one connection."""
    engine = open_engine(f"sqlite:///{file}", pool_size=1)
    yield Queue(engine, allowed_sources=SOURCES)
    engine.dispose()


def test_behind_a_reader_it_is_tried_when_the_log_is_twice_as_long(file, queue):
    """And the log goes on growing meanwhile, with everything in it."""
    with reader(file):
        work(queue, LOOK_EVERY)
        length, emptied = log_pages(file)
        assert emptied < length
        assert PAGES < pages(queue) <= 2 * length
    assert LOOK_EVERY * MESSAGES == queue.counts().received


def test_when_the_reader_has_gone_it_is_as_ever(file, queue):
    """The next look empties the log, and the one who writes next begins it anew."""
    with reader(file):
        work(queue, 3 * LOOK_EVERY)
        long, _ = log_pages(file)
        assert pages(queue) > PAGES
    work(queue, LOOK_EVERY)
    assert PAGES == pages(queue)
    work(queue, 1)
    length, _ = log_pages(file)
    assert length < long / 2


def test_with_nobody_in_the_way_nothing_changes(file, queue):
    """SQLite's own number of pages stays."""
    work(queue, 3 * LOOK_EVERY)
    assert PAGES == pages(queue)


def test_who_empties_the_log_himself_is_left_alone(file):
    """The number that the caller chose stays, such as none at all for who copies the log, and nothing is emptied."""
    engine = sa.create_engine(f"sqlite:///{file}")
    sa.event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA wal_autocheckpoint = 0"))
    queue = Queue(prepare_engine(engine), allowed_sources=SOURCES)
    work(queue, 3 * LOOK_EVERY)
    with engine.connect() as connection:
        assert 0 == connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar()
    assert (file.parent / "x.db-wal").stat().st_size > 1000 * 4096
    engine.dispose()


def test_what_the_database_has_against_it_fails_no_verb(queue, monkeypatch):
    """The attempt is no part of what was asked for."""

    def refuses(notes, driver):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(checkpoints, "_look", refuses)
    work(queue, LOOK_EVERY)
    assert LOOK_EVERY * MESSAGES == queue.counts().received
