"""What each verb costs: statements, messages, commits, and rows written. A change of these tables is a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.probes import taped
from recovery.backend import of, statement
from recovery.schema import Tables
from tests.plans.verbs import VERBS, Everything

TABLE_NAMES = ("inbox", "tasks", "outbox", "journal", "receipts", "effects")
FRAME = 2
"""Messages that are there for every verb: BEGIN with all of its settings, and COMMIT."""


@dataclass(frozen=True)
class Cost:
    """What went to the database: a statement over many sets of values counts once for each, and is one message."""

    statements: int
    messages: int
    commits: int = 1


HOT = (
    "receive",
    "receive_all",
    "claim",
    "claim_two_queues",
    "claim_on_empty",
    "claim_batch",
    "finish",
    "finish_batch",
    "finish_and_claim",
    "claim_reply",
    "claim_reply_batch",
    "settle",
    "settle_batch",
    "accept",
)
"""What a worker, a sender and a dispatcher do all day. Composed, each of them is one statement."""

COMPOSED = {
    "receive": Cost(1, 3),
    "receive_duplicate": Cost(2, 4),
    "receive_all": Cost(1, 3),
    "receive_all_duplicates": Cost(2, 4),
    "claim": Cost(1, 3),
    "claim_two_queues": Cost(1, 3),
    "claim_on_empty": Cost(1, 3),
    "claim_on_emptied": Cost(2, 4),
    "claim_future": Cost(1, 3),
    "claim_batch": Cost(1, 3),
    "has_work": Cost(2, 4),
    "finish": Cost(1, 3),
    "finish_again": Cost(1, 3),
    "finish_batch": Cost(1, 3),
    "finish_and_claim": Cost(1, 3),
    "fail": Cost(4, 6),
    "fail_for_good": Cost(5, 7),
    "release": Cost(4, 6),
    "cancel": Cost(5, 7),
    "renew": Cost(3, 5),
    "claim_reply": Cost(1, 3),
    "claim_reply_batch": Cost(1, 3),
    "has_reply": Cost(2, 4),
    "renew_reply": Cost(3, 5),
    "settle": Cost(1, 3),
    "settle_batch": Cost(1, 3),
    "accept": Cost(1, 3),
    "accept_duplicate": Cost(2, 4),
}
IN_STEPS = {
    "receive": Cost(3, 5),
    "receive_duplicate": Cost(2, 4),
    "receive_all": Cost(300, 104),
    "receive_all_duplicates": Cost(200, 202),
    "claim": Cost(2, 4),
    "claim_two_queues": Cost(2, 4),
    "claim_on_empty": Cost(2, 4),
    "claim_on_emptied": Cost(2, 4),
    "claim_future": Cost(2, 4),
    "claim_batch": Cost(101, 4),
    "has_work": Cost(1, 3),
    "finish": Cost(4, 5),
    "finish_again": Cost(3, 5),
    "finish_batch": Cost(400, 104),
    "finish_and_claim": Cost(6, 7),
    "fail": Cost(3, 5),
    "fail_for_good": Cost(5, 6),
    "release": Cost(3, 5),
    "cancel": Cost(5, 6),
    "renew": Cost(2, 4),
    "claim_reply": Cost(2, 4),
    "claim_reply_batch": Cost(101, 4),
    "has_reply": Cost(1, 3),
    "renew_reply": Cost(2, 4),
    "settle": Cost(3, 5),
    "settle_batch": Cost(300, 104),
    "accept": Cost(2, 4),
    "accept_duplicate": Cost(2, 4),
}

MOVED = {"tasks": 1, "journal": 1}
ENDED = {"tasks": 1, "outbox": 1, "journal": 2}
SENT = {"outbox": 1, "journal": 1}
ROWS: dict[str, dict[str, int]] = {
    "receive": {"inbox": 1} | MOVED,
    "receive_duplicate": {},
    "receive_all": {"inbox": 100, "tasks": 100, "journal": 100},
    "receive_all_duplicates": {},
    "claim": MOVED,
    "claim_two_queues": MOVED,
    "claim_on_empty": {},
    "claim_on_emptied": {},
    "claim_future": {},
    "claim_batch": {"tasks": 100, "journal": 100},
    "has_work": {},
    "finish": ENDED,
    "finish_again": {},
    "finish_batch": {"tasks": 100, "outbox": 100, "journal": 200},
    "finish_and_claim": {"tasks": 2, "outbox": 1, "journal": 3},
    "fail": MOVED,
    "fail_for_good": ENDED,
    "release": MOVED,
    "cancel": ENDED,
    "renew": {"tasks": 1},
    "claim_reply": SENT,
    "claim_reply_batch": {"outbox": 100, "journal": 100},
    "has_reply": {},
    "renew_reply": {"outbox": 1},
    "settle": SENT,
    "settle_batch": {"outbox": 100, "journal": 100},
    "accept": {"receipts": 1, "effects": 1},
    "accept_duplicate": {},
}
"""How many rows of each table are new or have changed afterwards. It is the same everywhere."""


def contents(engine: sa.Engine, at: Tables) -> dict[tuple[str, Any], tuple[Any, ...]]:
    """Every row, by its table and its key."""
    found: dict[tuple[str, Any], tuple[Any, ...]] = {}
    with engine.connect() as connection:
        for name in TABLE_NAMES:
            table: sa.Table = getattr(at, name)
            key = next(iter(table.primary_key)).name
            found |= {(name, row._mapping[key]): tuple(row) for row in connection.execute(sa.select(table))}
    return found


def cost(opened, name) -> tuple[Cost, dict[str, int]]:
    """What one call of a verb costs on a connection that is in use, and the rows that it wrote."""
    engine, at = opened.queue.engine, opened.queue.settings.tables
    with taped(engine) as tape, Everything.of(opened.queue) as on:
        on.cancel("no such task")  # The first transaction that writes looks where the file is, for its turn.
        steps = VERBS[name](on)
        next(steps)
        before = contents(engine, at)
        tape.clear()
        next(steps, None)
        end = tape.kept()
    after = contents(engine, at)
    assert before.keys() <= after.keys()
    written = [table for (table, key), row in after.items() if row != before.get((table, key))]
    counts = {table: written.count(table) for table in TABLE_NAMES if table in written}
    return Cost(end.statements, end.messages, end.commits), counts


def expected(opened) -> dict[str, Cost]:
    """The table of this backend."""
    return COMPOSED if of(opened.queue.engine).composes else IN_STEPS


@pytest.mark.parametrize("table", [COMPOSED, IN_STEPS, ROWS], ids=["composed", "in steps", "rows"])
def test_every_verb_is_counted(table):
    """No verb is left out of a table."""
    assert list(VERBS) == list(table)


def test_a_hot_verb_is_one_statement_where_verbs_are_composed():
    """Composed, a hot verb is BEGIN in one message, one statement, and COMMIT."""
    assert dict.fromkeys(HOT, Cost(1, 1 + FRAME, 1)) == {name: COMPOSED[name] for name in HOT}


@pytest.mark.parametrize("name", VERBS)
def test_costs_what_the_table_says(opened, name):
    """A verb sends exactly so many statements, messages and commits, and writes exactly so many rows."""
    assert (expected(opened)[name], ROWS[name]) == cost(opened, name)


@pytest.mark.parametrize("name", ["receive", "claim", "finish", "settle", "accept"])
def test_one_statement_too_many_is_noticed(opened, name, monkeypatch):
    """A verb that asks the database one more thing no longer costs what the table says."""
    inner = statement.run

    def chatty(connection: sa.Connection, text: str, given: Any) -> Any:
        inner(connection, "SELECT 1", {})
        return inner(connection, text, given)

    monkeypatch.setattr(statement, "run", chatty)
    found, rows = cost(opened, name)
    assert expected(opened)[name].statements < found.statements
    assert expected(opened)[name].messages < found.messages
    assert rows == ROWS[name]


def test_a_commit_too_many_is_noticed(opened, monkeypatch):
    """A verb that makes something durable before its end no longer costs what the table says."""
    inner = statement.run

    def hasty(connection: sa.Connection, text: str, given: Any) -> Any:
        answer = inner(connection, text, given)
        if "SELECT" not in text.upper().split():  # Whatever answers rows must have been fetched first.
            driver: Any = connection.connection.dbapi_connection  # Not its cursor, which still has the answer.
            driver.execute("COMMIT")
            driver.execute("BEGIN")
        return answer

    monkeypatch.setattr(statement, "run", hasty)
    found, _ = cost(opened, "renew")
    assert expected(opened)["renew"].commits < found.commits
