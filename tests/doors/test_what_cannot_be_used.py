"""Databases, drivers and engines that recovery cannot work with: each is refused, and says what to use instead."""

from __future__ import annotations

import sqlite3
import sys
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from recovery import (
    Busy,
    CommitUnknown,
    Misconfigured,
    StatementFailed,
    Unavailable,
    migrate,
    open_async_engine,
    open_engine,
    prepare_engine,
)
from recovery.backend import of, translate
from recovery.backend.postgresql import PostgreSQL, _connect_args, _watch
from recovery.backend.sqlite import SQLite


class Failed(Exception):
    """What a driver raises."""


def failed(**facts):
    """A driver's error with the facts that it tells beside its text."""
    error = Failed("with a secret in it")
    vars(error).update(facts)
    return error


def test_another_system_is_named():
    """There are two."""
    with pytest.raises(Misconfigured, match="SQLite or PostgreSQL, not in oracle"):
        of(SimpleNamespace(dialect=SimpleNamespace(name="oracle")))  # type: ignore[arg-type] # as one with its driver


@pytest.mark.parametrize(
    ("backend", "driver", "right"),
    [(PostgreSQL(), "psycopg2", "psycopg 3"), (SQLite(), "pysqlcipher", "standard driver")],
    ids=["psycopg2", "pysqlcipher"],
)
def test_another_driver_is_refused(backend, driver, right):
    """Also where somebody made the engine, and no URL told of it."""
    with pytest.raises(Misconfigured, match=right):
        backend.check_engine(SimpleNamespace(dialect=SimpleNamespace(driver=driver)))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite:///file:x?mode=memory&cache=shared&uri=true",
        "sqlite:///file:/x?vfs=memdb&uri=true",
    ],
)
def test_an_engine_on_memory_is_refused(url):
    """Whatever it is called: what it keeps dies with the process."""
    with pytest.raises(Misconfigured, match="in memory"):
        prepare_engine(sa.create_engine(url, poolclass=sa.pool.QueuePool))


def test_an_engine_is_prepared_once(tmp_path):
    """A second time changes nothing: no connection is set up twice, and no BEGIN sent twice."""
    engine = prepare_engine(sa.create_engine(f"sqlite:///{tmp_path}/mine.db"))
    before = len(engine.dispatch.begin), len(engine.pool.dispatch.connect)
    assert engine is prepare_engine(engine)
    assert before == (len(engine.dispatch.begin), len(engine.pool.dispatch.connect))


def test_sqlite_has_no_engine_for_asyncio(tmp_path):
    """It says who does it instead."""
    with pytest.raises(Misconfigured, match=r"AsyncQueue\.open"):
        open_async_engine(f"sqlite:///{tmp_path}/mine.db")


def test_a_file_in_another_encoding_is_refused(tmp_path):
    """SQLite would sort and compare texts by other bytes than those that were signed."""
    connection = sqlite3.connect(tmp_path / "mine.db")
    connection.execute("PRAGMA encoding = 'UTF-16le'")
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(Misconfigured, match="encoded in UTF-16le"):
        migrate(f"sqlite:///{tmp_path}/mine.db")


def test_a_server_database_in_another_encoding_is_refused(postgres_server):
    """Not every payload could be stored in it."""
    url = sa.make_url(postgres_server.admin_url).set(database="recovery_test_latin1")
    make = "CREATE DATABASE recovery_test_latin1 ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    with psycopg.connect(postgres_server.admin_url, autocommit=True) as server:
        server.execute(make)
        try:
            with pytest.raises(Misconfigured, match="encoded in LATIN1"):
                migrate(url)
        finally:
            server.execute("DROP DATABASE recovery_test_latin1")


def test_a_file_that_cannot_be_made_is_no_error_of_the_driver(tmp_path):
    """The reason is the system's; the folder is not made."""
    engine = open_engine(f"sqlite:///{tmp_path}/none/mine.db", create=True)
    with pytest.raises(Misconfigured, match="cannot be made: No such file"):
        engine.connect()
    assert [] == list(tmp_path.iterdir())


def test_the_other_library_is_an_extra(tmp_path, monkeypatch):
    """Where it is not there, what brings it is named."""
    monkeypatch.setitem(sys.modules, "pysqlite3", None)
    with pytest.raises(Misconfigured, match=r"pip install 'recovery\[sqlite\]'"):
        open_engine(f"sqlite+pysqlite3:///{tmp_path}/mine.db")


@pytest.mark.parametrize(("version", "is_refused"), [((3, 34, 1), True), ((3, 35, 0), False)])
def test_a_library_without_returning_is_refused(tmp_path, monkeypatch, version, is_refused):
    """The first one that has it is good enough."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    url = f"sqlite:///{tmp_path}/mine.db"
    if is_refused:
        with pytest.raises(Misconfigured, match="too old"):
            open_engine(url)
    else:
        open_engine(url).dispose()


@pytest.mark.parametrize(
    ("backend", "error", "kind"),
    [
        (PostgreSQL(), failed(sqlstate="53100"), Unavailable),
        (PostgreSQL(), failed(sqlstate="58030"), Unavailable),
        (PostgreSQL(), failed(sqlstate="23505"), StatementFailed),
        (SQLite(), failed(sqlite_errorcode=14), Unavailable),
        (SQLite(), failed(sqlite_errorcode=14 | (3 << 8)), Unavailable),
        (SQLite(), failed(sqlite_errorcode=19), StatementFailed),
        (SQLite(), sa.exc.ArgumentError("with a secret in it"), StatementFailed),
    ],
)
def test_a_driver_error_has_a_name_of_the_contract(backend, error, kind):
    """By its code alone, without its text."""
    found = translate(backend, error, "work")
    assert (kind, False) == (type(found), "secret" in str(found))


def test_an_error_of_the_contract_stays_what_it_is():
    """It is not wrapped a second time."""
    busy = Busy()
    assert busy is translate(SQLite(), busy, "work")


def test_the_bound_of_a_url_wins():
    """Who says how long a connection may take to be made is not overruled; who does not gets ours."""
    assert "connect_timeout" not in _connect_args(sa.make_url("postgresql://h/d?connect_timeout=3"))
    assert 10 == _connect_args(sa.make_url("postgresql://h/d"))["connect_timeout"]


def test_a_commit_whose_wait_for_a_standby_was_ended_is_not_sure():
    """The server only warns; it is said once, for that COMMIT, and other warnings say nothing of it."""
    handlers: list[Any] = []
    connection = SimpleNamespace(info={})
    _watch(SimpleNamespace(add_notice_handler=handlers.append), connection.info)
    (heard,) = handlers
    backend = PostgreSQL()
    heard(SimpleNamespace(source_function="AnotherFunction"))
    backend.check_answer(connection)  # type: ignore[arg-type] # as much of a connection as is looked at
    heard(SimpleNamespace(source_function="SyncRepWaitForLSN"))
    with pytest.raises(CommitUnknown, match="look before repeating"):
        backend.check_answer(connection)  # type: ignore[arg-type]
    backend.check_answer(connection)  # type: ignore[arg-type]
