"""A SQLite log that cannot be emptied: it is tried seldom, and as ever when nobody is in the way any more."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from recovery import Queue, migrate, open_engine, prepare_engine
from recovery.backend import checkpoints
from recovery.backend.checkpoints import PAGES
from tests.plugins.queues import AUTH, SOURCES, envelope

LOOK_EVERY, MESSAGES = 4, 20
CHOSEN_BYTES = 50_000_000


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A migrated file, whose log is looked at after every fourth transaction, and long soon."""
    monkeypatch.setattr(checkpoints, "LOOK_EVERY", LOOK_EVERY)
    monkeypatch.setattr(checkpoints, "LONG_PAGES", PAGES)
    migrate(f"sqlite:///{tmp_path}/x.db")
    return tmp_path / "x.db"


@contextlib.contextmanager
def reader(file):
    """Somebody who reads and stays."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as line:
        line.execute("BEGIN")
        line.execute("SELECT count(*) FROM tasks").fetchall()
        yield


def said(session, name):
    """What the session's connection says to a PRAGMA."""
    with session.engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def log_bytes(file):
    """How large the log's file is."""
    return file.with_name("x.db-wal").stat().st_size


def log_pages(file):
    """How many pages the log has, and how many of them are in the file already, after an attempt to empty it."""
    with contextlib.closing(sqlite3.connect(file)) as line:
        return line.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1:]


def work(queue, rounds):
    """So many transactions, each of some hundred pages."""
    for _ in range(rounds):
        queue.receive_all([envelope(uuid4().hex, payload={"text": "x" * 60_000}) for _ in range(MESSAGES)], AUTH)


def refused(*_, **__):
    """A disk that answers nothing."""
    raise PermissionError(13, "refused")


@contextlib.contextmanager
def opened(file, on_connect=lambda driver: None):
    """A queue with one connection, to which something is done when it is made."""
    engine = open_engine(f"sqlite:///{file}", pool_size=1)
    sa.event.listen(engine, "connect", lambda driver, _: on_connect(driver))
    try:
        yield Queue(engine, allowed_sources=SOURCES)
    finally:
        engine.dispose()


@pytest.fixture
def queue(file):
    """A queue with one connection."""
    with opened(file) as found:
        yield found


def test_behind_a_reader_it_is_tried_when_the_log_is_twice_as_long(file, queue):
    """And the log goes on growing meanwhile, with everything in it."""
    with reader(file):
        work(queue, 2 * LOOK_EVERY)
        length, emptied = log_pages(file)
        assert emptied < length
        assert PAGES < said(queue, "wal_autocheckpoint") <= 2 * length
    assert 2 * LOOK_EVERY * MESSAGES == queue.counts().received


def test_when_the_reader_has_gone_it_is_as_ever(file, queue):
    """The next look empties the log, and the one who writes next begins it anew."""
    with reader(file):
        work(queue, 3 * LOOK_EVERY)
        long, _ = log_pages(file)
        assert said(queue, "wal_autocheckpoint") > PAGES
    work(queue, LOOK_EVERY)
    assert PAGES == said(queue, "wal_autocheckpoint")
    work(queue, 1)
    length, _ = log_pages(file)
    assert length < long / 2


def test_with_nobody_in_the_way_nothing_changes(file, queue):
    """SQLite's own number of pages stays."""
    work(queue, 3 * LOOK_EVERY)
    assert PAGES == said(queue, "wal_autocheckpoint")


def test_a_log_that_is_not_long_is_left_to_sqlite(file, monkeypatch):
    """To try costs two syncs, and with nobody in the way SQLite has emptied it by itself."""
    monkeypatch.setattr(checkpoints, "LONG_PAGES", 4 * PAGES)
    sent: list[str] = []
    with opened(file, lambda driver: driver.set_trace_callback(sent.append)) as queue:
        work(queue, 3 * LOOK_EVERY)
        assert "PRAGMA wal_autocheckpoint" in sent
        assert not [text for text in sent if "wal_checkpoint" in text]
        with reader(file):
            work(queue, 4 * LOOK_EVERY)
        assert [text for text in sent if "wal_checkpoint" in text]


def test_a_log_that_was_long_gives_the_disk_back(file, queue):
    """Where it begins anew its file is cut, and tells again how long the log is."""
    work(queue, LOOK_EVERY)
    limit = said(queue, "journal_size_limit")
    with reader(file):
        work(queue, 3 * LOOK_EVERY)
        assert log_bytes(file) > 2 * limit > 0
    work(queue, LOOK_EVERY + 1)
    assert log_bytes(file) < 2 * limit


def test_a_limit_that_somebody_chose_stays(file):
    """It is his file."""
    with opened(file, lambda driver: driver.execute(f"PRAGMA journal_size_limit = {CHOSEN_BYTES}")) as queue:
        work(queue, LOOK_EVERY)
        assert said(queue, "journal_size_limit") == CHOSEN_BYTES


def test_a_log_that_cannot_be_looked_at_is_tried(file, queue, monkeypatch):
    """Whoever tries to empty it hears what is the matter."""
    work(queue, LOOK_EVERY)
    with reader(file), monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refused)
        work(queue, LOOK_EVERY)
    assert said(queue, "wal_autocheckpoint") > PAGES


def test_who_empties_the_log_himself_is_left_alone(file):
    """The number that the caller chose stays, such as none at all for who copies the log, and nothing is emptied."""
    engine = sa.create_engine(f"sqlite:///{file}")
    sa.event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA wal_autocheckpoint = 0"))
    queue = Queue(prepare_engine(engine), allowed_sources=SOURCES)
    work(queue, 3 * LOOK_EVERY)
    with engine.connect() as connection:
        assert 0 == connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar()
        assert -1 == connection.exec_driver_sql("PRAGMA journal_size_limit").scalar()
    assert log_bytes(file) > PAGES * 4096
    engine.dispose()


def test_what_the_database_has_against_it_fails_no_verb(queue, monkeypatch):
    """The attempt is no part of what was asked for."""

    def refuses(notes, driver):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(checkpoints, "_look", refuses)
    work(queue, LOOK_EVERY)
    assert LOOK_EVERY * MESSAGES == queue.counts().received
