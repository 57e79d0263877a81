"""A database on PostgreSQL whose clock is set by hand, whose tables are put back, and which tells who waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, LiteralString, TypeAlias

import psycopg
import sqlalchemy as sa
from psycopg import sql

START: Final = 1000
"""What the clock says at first, in seconds since the epoch."""
TABLES: Final = ("inbox", "tasks", "outbox", "receipts", "effects", "journal")
"""In an order in which rows can be inserted."""
NUMBERED: Final = (("tasks", "arrival"), ("outbox", "arrival"), ("journal", "seq"))
KEYS: Final = {name: "reply_id" if name in ("receipts", "effects") else "task_id" for name in TABLES[:-1]}
"""What orders the rows of all but the journal."""
NEW: Final = 1000
"""Rows that are new in a run are numbered from here on, in every run alike."""

# The library asks for `clock_timestamp()`, and finds this one first. A sequence shows what was set last to everybody,
# whatever their snapshots, as a clock does; it is the server's clock to the library, and stands still.
CLOCK: Final[LiteralString] = """
CREATE SCHEMA by_hand;
CREATE SEQUENCE by_hand.seconds;
CREATE FUNCTION by_hand.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT to_timestamp(last_value) FROM by_hand.seconds';
"""
WAITING: Final[LiteralString] = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0
"""
Rows: TypeAlias = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Tables that were set aside under a number, and the time at which they were."""

    number: int
    now: int


@dataclass(frozen=True, slots=True)
class Hindrance:
    """A statement of somebody else, who leaves its transaction open and then rolls it back."""

    statement: LiteralString
    values: Mapping[str, Any]


class Place:
    """Looks at a database beside those who act in it, through a connection of its own."""

    def __init__(self, url: str, settings: tuple[str, ...] = ()) -> None:
        self.url, self.now, self._beginnings = url, START, 0
        self._set(url, (*settings, "search_path = by_hand, pg_catalog, public"))
        self._line = psycopg.connect(url, autocommit=True)
        self._other = psycopg.connect(url)
        self._rows, self._put_back = _rows().as_string(self._line), dict[int, str]()
        self.turn(START)

    def _set(self, url: str, settings: tuple[str, ...]) -> None:
        """Make the clock, and give the database settings of its own, which hold for every connection after this one."""
        with psycopg.connect(url, autocommit=True) as line:
            line.execute(CLOCK)
            name = sql.Identifier(str(sa.make_url(url).database))
            for setting in settings:
                what, _, value = setting.partition(" = ")
                words = sql.SQL(", ").join(sql.Literal(word) for word in value.split(", "))
                line.execute(sql.SQL("ALTER DATABASE {} SET {} TO {}").format(name, sql.Identifier(what), words))

    def close(self) -> None:
        """Let go of the connections."""
        self._line.close()
        self._other.close()

    def turn(self, now: int) -> None:
        """Set the clock."""
        self._line.execute("SELECT setval('by_hand.seconds', %s)", (now,))
        self.now = now

    def hinder(self, by: Hindrance) -> None:
        """Begin a transaction in which this was done."""
        self._other.execute(by.statement, by.values)

    def unhinder(self) -> None:
        """Take it back."""
        self._other.rollback()

    def waiting(self) -> int:
        """How many connections wait for a lock that another one has."""
        row = self._line.execute(WAITING).fetchone()
        assert row is not None
        return int(row[0])

    def setting(self, name: str) -> str:
        """What the database says of a setting to those who connect."""
        row = self._line.execute("SELECT current_setting(%s)", (name,)).fetchone()
        assert row is not None
        return str(row[0])

    def set_aside(self) -> Beginning:
        """Keep the tables as they are now."""
        self._beginnings += 1
        for table in TABLES:
            kept = sql.SQL("CREATE TABLE {} AS TABLE {}")
            self._line.execute(kept.format(_kept(table, self._beginnings), sql.Identifier(table)))
        return Beginning(self._beginnings, self.now)

    def empty(self) -> None:
        """Take every row away, and number the next ones from 1."""
        self._line.execute(sql.Composed([_delete(), *_numbers(1)]))

    def put_back(self, beginning: Beginning) -> None:
        """Make the tables, what numbers their rows, and the clock as they were."""
        text = self._put_back.get(beginning.number)
        if text is None:
            text = self._put_back[beginning.number] = _put_back(beginning).as_string(self._line)
        self._send(text)
        self.now = beginning.now

    def rows(self) -> Rows:
        """Every row of every table, in the order of its key; the journal as it was written."""
        row = self._send(self._rows).fetchone()
        assert row is not None
        return dict(zip((*KEYS, "journal"), row, strict=True))

    def _send(self, text: str) -> psycopg.Cursor[Any]:
        return self._line.execute(text.encode())


def _rows() -> sql.Composed:
    orders = {**KEYS, "journal": "seq"}
    one = sql.SQL("(SELECT coalesce(json_agg(r), '[]') FROM (SELECT * FROM {} ORDER BY {}) AS r)")
    parts = [one.format(sql.Identifier(table), sql.Identifier(order)) for table, order in orders.items()]
    return sql.SQL("SELECT {}").format(sql.SQL(", ").join(parts))


def _put_back(beginning: Beginning) -> sql.Composed:
    insert = sql.SQL("INSERT INTO {} SELECT * FROM {};")
    inserts = [insert.format(sql.Identifier(table), _kept(table, beginning.number)) for table in TABLES]
    turn = sql.SQL("SELECT setval('by_hand.seconds', {});").format(beginning.now)
    return sql.Composed([sql.SQL("BEGIN;"), _delete(), *inserts, *_numbers(NEW), turn, sql.SQL("COMMIT")])


def _kept(table: str, number: int) -> sql.Identifier:
    return sql.Identifier("by_hand", f"{table}_{number}")


def _delete() -> sql.Composed:
    return sql.Composed([sql.SQL("DELETE FROM {};").format(sql.Identifier(table)) for table in reversed(TABLES)])


def _numbers(first: int) -> list[sql.Composed]:
    setval = sql.SQL("SELECT setval(pg_get_serial_sequence({}, {}), {}, false);")
    return [setval.format(table, column, first) for table, column in NUMBERED]
