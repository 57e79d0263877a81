"""A database seen from outside with the plain drivers: its catalog word for word, its rows, and whether it is whole."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import psycopg
import sqlalchemy as sa

from recovery.testing.reading import plain

Rows: TypeAlias = dict[str, list[dict[str, Any]]]
VERSION_TABLE: Final = "recovery_version"
TABLES: Final = ("inbox", "tasks", "outbox", "receipts", "effects", "journal", "fence_floor", VERSION_TABLE)
SQLITE: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
COLUMNS: Final = """
    SELECT c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        a.attidentity::text, a.attcollation::regcollation::text, pg_get_expr(d.adbin, d.adrelid)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum
"""
CONSTRAINTS: Final = """
    SELECT conrelid::regclass::text, conname, convalidated, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2
"""
INDEXES: Final = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2"
POSTGRESQL: Final = (COLUMNS, CONSTRAINTS, INDEXES)


class Seen:
    """An open look at a database. What is there is asked for anew each time."""

    def __init__(self, cursor: Any, *, is_file: bool) -> None:
        self._cursor = cursor
        self._is_file = is_file

    def all(self, statement: str) -> list[tuple[Any, ...]]:
        """What a statement answers."""
        self._cursor.execute(statement)
        return [tuple(row) for row in self._cursor.fetchall()]

    def catalog(self) -> list[tuple[Any, ...]]:
        """Every table, column, constraint and index, in the database's own words."""
        return [row for asked in ((SQLITE,) if self._is_file else POSTGRESQL) for row in self.all(asked)]

    def rows(self) -> Rows:
        """Every cell of every table that is there, the version included."""
        there = {str(found) for row in self.catalog() for found in row[:3]}
        found: Rows = {}
        for table in (table for table in TABLES if table in there):
            rows = self.all(f"SELECT * FROM {table} ORDER BY 1")
            names = [column[0] for column in self._cursor.description]
            found[table] = [dict(zip(names, row, strict=True)) for row in rows]
        return found

    def damages(self) -> list[str]:
        """What SQLite says is wrong with a file; nothing for a server, which is asked in other ways."""
        if not self._is_file:
            return []
        wrong = [str(row[0]) for row in self.all("PRAGMA integrity_check") if row[0] != "ok"]
        return wrong + [f"a row of {row[0]} refers to nothing" for row in self.all("PRAGMA foreign_key_check")]


@contextlib.contextmanager
def seen(url: str) -> Iterator[Seen]:
    """A look at a database; a file that does not exist is not made, and looks empty."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        with psycopg.connect(plain(parsed), autocommit=True) as server:
            yield Seen(server.cursor(), is_file=False)
        return
    name = str(parsed.database)
    with contextlib.closing(sqlite3.connect(name if Path(name).exists() else ":memory:", isolation_level=None)) as file:
        yield Seen(file.cursor(), is_file=True)


def upgraded(rows: Rows, version: str, added: dict[str, Any]) -> Rows:
    """What an upgrade makes of these rows: the version is another one, and each task has what was `added`."""
    tasks = [{name: added.get(name) if cell is None else cell for name, cell in row.items()} for row in rows["tasks"]]
    return {**rows, "tasks": tasks, VERSION_TABLE: [{"version_num": version}]}
