from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import Misconfigured, Queue, Receiver, SchemaMismatch, migrate, prepare_engine
from tests.plugins.queues import AUTH, SOURCES, envelope

BAD_URLS = {
    "": "cannot be read",
    "nonsense": "cannot be read",
    "sqlite://": "in memory",
    "sqlite:///:memory:": "in memory",
    "sqlite:///x.db?mode=memory": "in memory",
    "sqlite:///file:x.db?uri=true": "path of the file",
    "sqlite:///x.db?cache=shared": "no option but mode",
    "sqlite+aiosqlite:///x.db": "standard driver",
    "postgres://me:s3cret@h/d": "write postgresql://",
    "postgresql+psycopg2://me:s3cret@h/d": "psycopg 3",
    "postgresql+asyncpg://me:s3cret@h/d": "psycopg 3",
    "mysql://me:s3cret@h/d": "this is neither",
    "mysql+asyncmy://me:s3cret@h/d": "this is neither",
}


@pytest.mark.parametrize("url", BAD_URLS)
def test_refused_urls(door, tmp_path, monkeypatch, url):
    """In-memory databases, other drivers and other databases are refused with a sentence, and no file is made."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for opened in (door.queue, door.receiver):
        with pytest.raises(Misconfigured, match=BAD_URLS[url]) as caught:
            opened(url)
        assert "s3cret" not in str(caught.value)
    assert [] == list(Path().iterdir())


@pytest.mark.parametrize("mode", ["", "?mode=rw", "?mode=ro"])
def test_missing_file_is_not_made(door, tmp_path, mode):
    """A file that does not exist is a SchemaMismatch that says how to make it, and is not made."""
    folder = tmp_path / "empty"
    folder.mkdir()
    for opened in (door.queue, door.receiver):
        with pytest.raises(SchemaMismatch, match="recovery migrate"):
            opened(f"sqlite:///{folder}/missing.db{mode}")
    assert [] == list(folder.iterdir())


def test_missing_schema(door, stored, database_url):
    """A database without the tables is a SchemaMismatch that says how to make them, and none is made."""
    with stored.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE recovery_version"))
    for opened in (door.queue, door.receiver):
        with pytest.raises(SchemaMismatch, match="recovery migrate"):
            opened(database_url)
    assert not sa.inspect(stored.engine).has_table("recovery_version")


@pytest.mark.parametrize(("version", "word"), [("0000", "migrate"), ("9999", "upgrade")])
def test_other_schema(door, stored, database_url, version, word):
    """A schema that is too old or too new is a SchemaMismatch, and stays as it is."""
    with stored.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE recovery_version SET version_num = '{version}'"))
    for opened in (door.queue, door.receiver):
        with pytest.raises(SchemaMismatch, match=word):
            opened(database_url)
    with stored.engine.connect() as connection:
        assert version == connection.execute(sa.text("SELECT version_num FROM recovery_version")).scalar_one()


@pytest.mark.parametrize(
    "settings",
    [
        {"allowed_sources": "agent-a"},
        {"lease_seconds": 0},
        {"lease_seconds": float("inf")},
        {"lease_seconds": True},
        {"backoff": -1},
        {"max_hops": -1},
        {"clock": 5},
        {"table_prefix": "A;"},
    ],
    ids=str,
)
def test_refused_settings(door, database_url, settings):
    """A bare str as sources, and a time or number out of bounds, is refused when the queue is made."""
    with pytest.raises(Misconfigured):
        door.queue(database_url, **settings)


def foreign(stored, **options):
    """An engine of the caller's own, not prepared."""
    return sa.create_engine(stored.engine.url, **options)


@pytest.mark.parametrize("kind", [Queue, Receiver])
def test_foreign_engine(stored, kind):
    """An engine that was not prepared is refused."""
    with pytest.raises(Misconfigured, match="prepare_engine"):
        kind(foreign(stored))


@pytest.mark.parametrize("kind", [Queue, Receiver])
def test_autocommit_engine(stored, kind):
    """An engine at AUTOCOMMIT is refused, however it got there, also after it was prepared."""
    with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
        prepare_engine(foreign(stored, isolation_level="AUTOCOMMIT"))
    with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
        prepare_engine(foreign(stored, execution_options={"isolation_level": "AUTOCOMMIT"}))
    with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
        kind(prepare_engine(foreign(stored)).execution_options(isolation_level="AUTOCOMMIT"))


class WithAutocommit(sqlite3.Connection):
    """A connection with Python's `autocommit`, which older Pythons do not have."""

    autocommit: Any = True


@pytest.fixture
def file(tmp_path):
    """The path of a migrated file."""
    migrate(f"sqlite:///{tmp_path}/x.db")
    return tmp_path / "x.db"


def tried_with(file, **connect_args):
    """Open a queue on the caller's engine with these arguments for the driver."""
    engine = prepare_engine(sa.create_engine(f"sqlite:///{file}", connect_args=connect_args))
    try:
        return Queue(engine, allowed_sources=SOURCES).receive(envelope(deadline=2.0**40), AUTH).duplicate
    finally:
        engine.dispose()


@pytest.mark.parametrize("value", [True, False])
def test_pythons_autocommit(file, value):
    """A connection that has Python's `autocommit` set, to either value, is refused before anything is sent on it."""
    kind = type("Set", (WithAutocommit,), {"autocommit": value})
    before = file.read_bytes()
    with pytest.raises(Misconfigured, match="autocommit"):
        tried_with(file, factory=kind)
    assert ([file], before) == (list(file.parent.iterdir()), file.read_bytes())


def test_pythons_autocommit_left_alone(file):
    """The value that Python 3.12 gives where nobody has set one is not refused."""
    assert tried_with(file, factory=type("Unset", (WithAutocommit,), {"autocommit": -1})) is False


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has had `autocommit` since Python 3.12")
@pytest.mark.parametrize("value", [True, False])
def test_pythons_own_autocommit(file, value):
    """The same with the argument of Python's own driver, and its default is not refused."""
    before = file.read_bytes()
    with pytest.raises(Misconfigured, match="autocommit"):
        tried_with(file, autocommit=value)
    assert before == file.read_bytes()
    assert tried_with(file) is False


def test_drivers_autocommit(postgres_database):
    """On PostgreSQL a connection at the driver's autocommit is refused too."""
    url = sa.make_url(postgres_database).set(drivername="postgresql+psycopg")
    engine = prepare_engine(sa.create_engine(url, connect_args={"autocommit": True}))
    with pytest.raises(Misconfigured, match="autocommit"):
        Queue(engine)
    engine.dispose()


def test_an_engine_that_connected_before(stored):
    """An engine that has connected already cannot be prepared."""
    engine = foreign(stored)
    with engine.connect():
        pass
    with pytest.raises(Misconfigured, match="first connection"):
        prepare_engine(engine)
    engine.dispose()


def test_own_engine_prepared(stored):
    """The caller's own engine works once it was prepared, and the queue leaves it open."""
    engine = prepare_engine(foreign(stored))
    with Queue(engine) as queue:
        assert 0 == queue.counts().received
    with engine.connect() as connection:
        assert 1 == connection.execute(sa.text("SELECT 1")).scalar_one()
    engine.dispose()


def test_opening_writes_nothing(door, stored, database_url):
    """Opening changes nothing, and takes no write lock: it works while somebody else is writing."""
    before = stored.contents()
    with stored.engine.begin() as connection:
        connection.execute(sa.text("UPDATE fence_floor SET floor = floor"))
        door.queue(database_url)
    assert before == stored.contents()
