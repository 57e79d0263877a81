"""What the ladder refuses: each with its class and a sentence that says what to do, and nothing was changed."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from recovery import Misconfigured, Queue, ReadOnly, Receiver, SchemaMismatch, migrate, open_engine
from recovery.migrate import migration_sql
from recovery.schema import VERSION, tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def engine(empty_url):
    """An empty database, seen from outside."""
    made = open_engine(empty_url, create=True)
    yield made
    made.dispose()


def run(engine, *statements):
    """Run statements as the database's owner."""
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def alembic(*args):
    """`alembic` in the checkout: its exit code and what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "RECOVERY_URL"}
    command = [sys.executable, "-m", "alembic", *args]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("file", [False, True], ids=["missing", "there"])
def test_mode_ro(tmp_path, file):
    """A URL that says mode=ro is ReadOnly: no file is made, and one that is there keeps every byte."""
    path = tmp_path / "x.db"
    if file:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE host (x)")
        connection.close()
    before = path.read_bytes() if file else None
    with pytest.raises(ReadOnly, match="mode=ro"):
        migrate(f"sqlite:///{path}?mode=ro")
    assert before == (path.read_bytes() if path.exists() else None)
    assert ([path] if file else []) == list(tmp_path.iterdir())


def test_mode_ro_at_head(tmp_path):
    """That holds for a database that is at head too: whoever upgrades means to write."""
    path = tmp_path / "x.db"
    migrate(f"sqlite:///{path}")
    before = path.read_bytes()
    with pytest.raises(ReadOnly, match="mode=ro"):
        migrate(f"sqlite:///{path}?mode=ro")
    assert before == path.read_bytes()


@pytest.mark.parametrize(("there", "wanted"), [(True, ReadOnly), (False, Misconfigured)])
def test_a_file_that_may_not_be_written(tmp_path, monkeypatch, there, wanted):
    """A write-protected file is ReadOnly; one that cannot be made where it is wanted is Misconfigured."""
    path, real = tmp_path / "x.db", os.open
    if there:
        path.touch()

    def refused(name, *args, **kwargs):
        if Path(name) == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return real(name, *args, **kwargs)

    # Root may write anything: the mode of the file would show nothing.
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(wanted, match="Permission denied"):
        migrate(f"sqlite:///{path}")
    assert there == path.exists()


def test_alembic_with_mode_ro(tmp_path):
    """`alembic upgrade head` refuses it too, and makes nothing."""
    code, said = alembic("-x", f"url=sqlite:///{tmp_path}/x.db?mode=ro", "upgrade", "head")
    assert (255, True) == (code, "mode=ro" in said)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("prefix", ["sqlite_", "Bad", "a b", "a-"])
def test_a_prefix_that_is_no_prefix(empty_url, engine, prefix):
    """A prefix that could not be opened afterwards is refused before anything is made, by alembic as well."""
    for refused in (migrate, migration_sql):
        with pytest.raises(Misconfigured, match="table_prefix"):
            refused(empty_url, table_prefix=prefix)
    code, said = alembic("-x", f"url={empty_url}", "-x", f"prefix={prefix}", "upgrade", "head")
    assert (255, True) == (code, "prefix" in said)
    assert [] == sa.inspect(engine).get_table_names()


IN_THE_WAY = {
    "table": "CREATE TABLE outbox (x INTEGER)",
    "view": "CREATE VIEW outbox AS SELECT 1 AS x",
    "index": "CREATE INDEX ix_outbox_lease ON host (x)",
    "first": "CREATE TABLE inbox (x INTEGER)",
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_something_of_the_hosts_in_the_way(empty_url, engine, kind):
    """A table, view or index of the host's own with one of our names is Misconfigured, and the way out is named."""
    run(engine, "CREATE TABLE host (x INTEGER)", IN_THE_WAY[kind])
    look = sa.inspect(engine)
    before = sorted(look.get_table_names() + look.get_view_names())
    with pytest.raises(Misconfigured, match="table_prefix"):
        migrate(empty_url)
    look = sa.inspect(engine)
    assert before == sorted(look.get_table_names() + look.get_view_names())
    migrate(empty_url, table_prefix="our_")


def test_tables_whose_version_was_lost(empty_url, engine):
    """Our own tables without their version table are not taken for missing ones, and stay as they are."""
    migrate(empty_url)
    run(engine, "DROP TABLE recovery_version")
    with pytest.raises(Misconfigured, match="already"):
        migrate(empty_url)
    assert set(tables().metadata.tables) == set(sa.inspect(engine).get_table_names())


def test_a_role_that_may_not_create(postgres_server, request):
    """A role without the right to make tables is Misconfigured, and the right is named."""
    url = postgres_server.create_database()
    request.addfinalizer(lambda: postgres_server.drop_database(url))
    owner = open_engine(url)
    run(owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "CREATE ROLE may_not_create LOGIN PASSWORD 'secret'")
    poor = sa.make_url(url).set(username="may_not_create", password="secret")
    try:
        with pytest.raises(Misconfigured, match="CREATE"):
            migrate(poor)
        run(owner, "ALTER ROLE may_not_create SET search_path = nowhere")
        with pytest.raises(Misconfigured, match="search_path"):
            migrate(poor)
        assert [] == sa.inspect(owner).get_table_names()
    finally:
        run(owner, "DROP ROLE may_not_create")
        owner.dispose()


def test_two_versions(empty_url, engine):
    """A version table with two rows tells nothing: SchemaMismatch, at every door, and both rows stay."""
    migrate(empty_url)
    run(engine, "INSERT INTO recovery_version VALUES ('0000')")
    for opened in (Queue.open, Receiver.open, migrate):
        with pytest.raises(SchemaMismatch, match="recovery_version"):
            opened(empty_url)
    with engine.connect() as connection:
        found = connection.execute(sa.select(tables().version.c.version_num)).scalars()
        assert ["0000", VERSION] == sorted(found)


def test_no_version(empty_url, engine):
    """A version table without a row is a schema that is missing."""
    migrate(empty_url)
    run(engine, "DELETE FROM recovery_version")
    with pytest.raises(SchemaMismatch, match="recovery migrate"):
        Queue.open(empty_url)


def test_a_revision_nobody_knows(empty_url, engine):
    """One row that this release does not know is a schema that is newer."""
    migrate(empty_url)
    run(engine, "UPDATE recovery_version SET version_num = '9999'")
    with pytest.raises(SchemaMismatch, match="upgrade recovery"):
        migrate(empty_url)
