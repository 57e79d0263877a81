from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import Misconfigured, Queue, Receiver, SchemaMismatch, prepare_engine

BAD_URLS = ["sqlite://", "sqlite:///:memory:", "postgres://h/d", "postgresql+psycopg2://h/d", "mysql://h/d", "nonsense"]


@pytest.mark.parametrize("url", BAD_URLS)
def test_refused_urls(door, url):
    """In-memory databases, other drivers and other databases are refused with a sentence."""
    with pytest.raises(Misconfigured):
        door.queue(url)
    with pytest.raises(Misconfigured):
        door.receiver(url)


def test_missing_file_is_not_made(door, tmp_path):
    """A file that does not exist is a SchemaMismatch and is not made."""
    path = tmp_path / "missing.db"
    with pytest.raises(SchemaMismatch):
        door.queue(f"sqlite:///{path}")
    assert not path.exists()


def test_missing_schema(door, stored, database_url):
    """A database without the tables is a SchemaMismatch that says how to make them."""
    with stored.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE recovery_version"))
    with pytest.raises(SchemaMismatch, match="recovery migrate"):
        door.queue(database_url)


@pytest.mark.parametrize(("version", "word"), [("0000", "migrate"), ("9999", "upgrade")])
def test_other_schema(door, stored, database_url, version, word):
    """A schema that is too old or too new is a SchemaMismatch, and stays as it is."""
    with stored.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE recovery_version SET version_num = '{version}'"))
    with pytest.raises(SchemaMismatch, match=word):
        door.queue(database_url)
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


def test_autocommit_engine(stored):
    """An engine at AUTOCOMMIT is refused."""
    with pytest.raises(Misconfigured, match="AUTOCOMMIT"):
        prepare_engine(foreign(stored, isolation_level="AUTOCOMMIT"))


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
