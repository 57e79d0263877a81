"""What a verb really sends, and how the database means to answer it: taken where the statement goes to the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa
from psycopg import sql
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

from recovery.backend import prepared, statement
from recovery.schema import Tables

EXEMPT = "fence_floor"
"""It has one row, and reading that is cheaper without an index."""
SCAN = re.compile(r"(SCAN|SEARCH) (\w+)(?: AS \w+)?(?: USING (?:COVERING )?(?:INDEX (\w+)|(INTEGER PRIMARY KEY)))?")
BOUND_STATE = re.compile(r"\bstate\s*(?:=|<>|!=|IN)\s*\(*\s*(?:CAST\()?\s*(?::|%\(|\?)", re.IGNORECASE)
STEPS = 10
"""So many steps of the machine are counted at a time."""
STEPS_MAX = 1_000_000
"""Nobody waits for the end of a statement that takes more."""
Rewrite: TypeAlias = Callable[[str, Any], tuple[str, Any]]
"""Of a statement and its values, another one."""
IN_TRANSACTION = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "
WITHOUT_RUNNING = "EXPLAIN QUERY PLAN "


@dataclass(frozen=True)
class Access:
    """A table that is read, and by which index (none: from one end to the other)."""

    table: str
    index: str | None
    rows: int = 0


@dataclass
class Seen:
    """One statement: its text, how it reads its tables, and how much it touched.

    `touched` counts rows that were read where the database tells, else the steps of its machine. `kept` tells whether
    the statement had been prepared before, so that its plan was made then.
    """

    text: str
    accesses: list[Access] = field(default_factory=list)
    touched: int = 0
    blocks: int = 0
    kept: bool = False


class Watcher:
    """Explains each statement just before it is run, in the state of the tables that it will meet."""

    def __init__(self, tables: Tables, rewrite: Rewrite | None = None) -> None:
        self.seen: list[Seen] = []
        self._rewrite = rewrite or (lambda text, given: (text, given))
        self._prefix = tables.prefix
        self._names = {table.name: name for name, table in _named(tables).items()}

    def run(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """What stands in for `statement.run`, or for `run_many`, which is explained by its first set of values."""

        def watched(connection: sa.Connection, text: str, given: Any) -> Any:
            many = isinstance(given, list)
            text, first = self._rewrite(text, given[0] if many else given)
            given = [first, *given[1:]] if many else first
            statement.begun(connection)
            self.seen.append(Seen(text))
            driver: Any = connection.connection.dbapi_connection
            if counts_steps(driver):
                self._explain_and_count(driver, self.seen[-1], first)
            else:
                self._explain_by_running(driver, self.seen[-1], first, kept=prepared.is_used(connection))
            return inner(connection, text, given)

        return watched

    def _explain_by_running(self, driver: Any, seen: Seen, given: Any, *, kept: bool) -> None:
        """In a savepoint that is rolled back, so that what was run is run as if for the first time."""
        cursor = driver.cursor()
        with _planned(driver, seen.text, given) if kept else nullcontext((seen.text, given)) as asked:
            cursor.execute("SAVEPOINT explained")
            cursor.execute(IN_TRANSACTION + asked[0], asked[1])
            plan = cursor.fetchone()[0][0]["Plan"]
            seen.kept = asked[0].startswith("EXECUTE _pg3_")
            # Past the driver, which takes any ROLLBACK for the end of all that it has prepared.
            driver.pgconn.exec_(b"ROLLBACK TO SAVEPOINT explained; RELEASE SAVEPOINT explained")
        seen.blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        seen.accesses = [access for node in _nodes(plan) if (access := self._access(node)) is not None]
        seen.touched = sum(access.rows for access in seen.accesses)

    def _access(self, node: dict[str, Any]) -> Access | None:
        if "Scan" not in node["Node Type"] or node["Node Type"] == "Bitmap Heap Scan":
            return None
        by_index = node.get("Index Name")
        table = node.get("Relation Name", "") if by_index is None else self._table_of(by_index)
        if self._names.get(table, EXEMPT) == EXEMPT:
            return None
        read = (
            node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        )
        # An index that is read without a condition is read from one end to the other.
        index = self._plain(by_index) if by_index and "Index Cond" in node else None
        return Access(self._names[table], index, round(read * node["Actual Loops"]))

    def _explain_and_count(self, driver: Any, seen: Seen, given: Any) -> None:
        """Without running it; its steps are counted while it really runs."""
        driver.set_progress_handler(None, 1)
        for row in driver.cursor().execute(WITHOUT_RUNNING + seen.text, given).fetchall():
            found = SCAN.match(row[3])
            if found and self._names.get(found[2], EXEMPT) != EXEMPT:
                by_index = found[3] or found[4]
                index = self._plain(by_index) if by_index and found[1] == "SEARCH" else None
                seen.accesses.append(Access(self._names[found[2]], index))

        def step() -> int:
            seen.touched += STEPS
            return int(seen.touched > STEPS_MAX)  # Whatever is not nought ends the statement.

        driver.set_progress_handler(step, STEPS)

    def _table_of(self, index: str) -> str:
        longest = sorted(self._names, key=len, reverse=True)
        return next(name for name in longest if re.match(rf"(pk_|ix_|uq_){name}(_|$)", index))

    def _plain(self, index: str) -> str:
        """The name that an index has where the tables have no prefix, and a primary key its own."""
        index = re.sub(r"^sqlite_autoindex_(\w+)_1$", r"pk_\1", index)
        return index.replace(self._prefix, "") if self._prefix else index


@contextmanager
def _planned(driver: Any, text: str, given: Any) -> Iterator[tuple[str, None]]:
    """What explains a statement by the plan that its prepared form has, or would have if it were prepared now."""
    query = PostgresQuery(Transformer(driver))
    query.convert(text, given)
    cursor = driver.cursor()
    found = "SELECT name FROM pg_prepared_statements WHERE statement = %s"
    name = next((name for (name,) in cursor.execute(found, [query.query.decode()])), None)
    values = ", ".join(sql.Literal(given[name]).as_string(driver) for name in query._order or ())
    values = f"({values})" if values else ""
    if name is not None:
        yield f"EXECUTE {name} {values}", None
        return
    named = "SELECT coalesce(format_type(nullif(%s, 0), NULL), 'unknown')"
    kinds = ", ".join(cursor.execute(named, [oid]).fetchone()[0] for oid in query.types)
    cursor.execute(f"PREPARE explained {f'({kinds})' if kinds else ''} AS {query.query.decode()}")
    yield f"EXECUTE explained {values}", None
    cursor.execute("DEALLOCATE explained")


def _named(tables: Tables) -> dict[str, sa.Table]:
    names = ("inbox", "tasks", "outbox", "journal", "receipts", "effects", EXEMPT)
    return {name: getattr(tables, name) for name in names}


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from _nodes(below)


@contextmanager
def watched(connection: sa.Connection, tables: Tables, rewrite: Rewrite | None = None) -> Iterator[Watcher]:
    """Watch every statement that verbs send, and first rewrite it where a test wants a worse one."""
    watcher = Watcher(tables, rewrite)
    driver: Any = connection.connection.dbapi_connection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statement, "run", watcher.run(statement.run))
        patch.setattr(statement, "run_many", watcher.run(statement.run_many))
        try:
            yield watcher
        finally:
            if counts_steps(driver):
                driver.set_progress_handler(None, 1)


def counts_steps(driver: Any) -> bool:
    """Whether a driver's connection can tell how many steps a statement takes."""
    return hasattr(driver, "set_progress_handler")
