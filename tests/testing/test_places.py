"""Throw-away places: nothing of the user's is touched, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from recovery import Misconfigured, Queue, Unavailable
from recovery.testing.reading import plain
from recovery.testing.torture.places import terminate_one, throw_away

KINDS = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'recovery_torture%'"
TABLES = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"


def test_a_file_is_made_beside_and_goes(tmp_path):
    """The named file is not even made; the new ones are in a folder of their own beside it."""
    url = f"sqlite:///{tmp_path}/mine.db"
    with throw_away(url) as places:
        queue = Path(sa.make_url(places.queue_url).database or "")
        assert (tmp_path, False) == (queue.parent.parent, (tmp_path / "mine.db").exists())
        with Queue.open(places.queue_url) as opened:
            assert 0 == opened.counts().received
    assert [] == list(tmp_path.iterdir())


def test_a_folder_that_is_missing_is_said_so(tmp_path):
    """A typing mistake makes no folder."""
    with pytest.raises(Misconfigured), throw_away(f"sqlite:///{tmp_path}/none/mine.db"):
        pass


def test_schemas_are_made_and_go(postgres_database):
    """Queue and receiver have a schema each; the user's own options stay, and so do their tables."""
    url = sa.make_url(postgres_database).update_query_dict({"options": "-c work_mem=5MB"})
    with psycopg.connect(plain(url)) as outside:
        before = outside.execute(TABLES).fetchone()
        outside.rollback()
        with throw_away(url.render_as_string(hide_password=False)) as places:
            assert places.queue_url != places.receiver_url
            for one in (places.queue_url, places.receiver_url):
                with psycopg.connect(plain(sa.make_url(one))) as inside:
                    assert ("5MB",) == inside.execute("SHOW work_mem").fetchone()
                    assert (0,) == inside.execute("SELECT count(*) FROM inbox").fetchone()
            assert 2 == len(outside.execute(KINDS).fetchall())
            outside.rollback()
        assert ([], before) == (outside.execute(KINDS).fetchall(), outside.execute(TABLES).fetchone())


def test_only_sessions_of_the_torture_are_ended(postgres_database):
    """Those of its own name; anybody else's goes on, and where there is none nothing happens."""
    url = sa.make_url(postgres_database)
    named = plain(url.update_query_dict({"application_name": "victim"}))
    with psycopg.connect(plain(url)) as bystander:
        assert not terminate_one(postgres_database, "victim", 0.5)
        with psycopg.connect(named, autocommit=True) as victim:
            assert terminate_one(postgres_database, "victim", 0.99)
            with pytest.raises(psycopg.OperationalError):
                victim.execute("SELECT 1")
        assert (1,) == bystander.execute("SELECT 1").fetchone()


def test_a_server_that_cannot_be_used_is_said_so(postgres_database):
    """Nobody there, and a role that may make no schema, are errors of the contract."""
    with pytest.raises(Unavailable), throw_away("postgresql://nobody@127.0.0.1:1/none"):
        pass
    url = sa.make_url(postgres_database)
    with psycopg.connect(plain(url), autocommit=True) as server:
        server.execute("CREATE ROLE powerless LOGIN PASSWORD 'x'")
    try:
        powerless = url.set(username="powerless", password="x").render_as_string(hide_password=False)
        with pytest.raises(Misconfigured), throw_away(powerless):
            pass
    finally:
        with psycopg.connect(plain(url), autocommit=True) as server:
            server.execute("DROP ROLE powerless")
