"""Leases over any leased table: take, hold, write, and find what is due.

A lease is a whole or nothing: an owner, a time at which it is over, and a fence that only grows. Whoever wants to
change a held row first locks it, then reads the clock, then checks the lease; in that order, because the check is
worth nothing if the lease can run out while the lock is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from recovery import clock, states
from recovery.accepting import is_text_key
from recovery.backend import of
from recovery.clock import ManualClock
from recovery.errors import Fenced
from recovery.schema import Tables

SETTLE_ROWS_MAX = 100
FENCE_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Leased:
    """A table whose rows can be held: its key, its moves, and the state of a row that somebody holds."""

    table: sa.Table
    key: sa.Column[str]
    moves: states.Moves
    held: str

    @property
    def deadline(self) -> sa.Column[float] | None:
        """The column after which a row can no longer be held; replies have none."""
        return self.table.c.get("deadline")


@cache
def leased_tasks(tables: Tables) -> Leased:
    """Tasks, held by workers."""
    return Leased(tables.tasks, tables.tasks.c.task_id, states.TASK_MOVES, states.RUNNING)


@cache
def leased_replies(tables: Tables) -> Leased:
    """Replies, held by dispatchers."""
    return Leased(tables.outbox, tables.outbox.c.reply_id, states.REPLY_MOVES, states.SENDING)


def literal(state: str) -> sa.ColumnElement[str]:
    """A state as text in the statement: a bound one keeps PostgreSQL from using the partial indexes."""
    return sa.literal_column(f"'{state}'", sa.Text())


def take(connection: sa.Connection, leased: Leased, owner: str, now: float, lease_until: float, limit: int) -> Any:
    """Hold up to `limit` due rows, oldest first, and return them. Rows that others have locked are passed over."""
    values = {"p_now": now, "p_owner": owner, "p_lease_until": lease_until, "p_limit": limit}
    rows = connection.execute(_take(leased), values).all()
    return sorted(rows, key=lambda row: (row.available_at, row.arrival))


@cache
def _take(leased: Leased) -> sa.sql.dml.ReturningUpdate[Any]:
    table = leased.table
    now: sa.BindParameter[float] = sa.bindparam("p_now", type_=sa.Double())
    due = [table.c.state == literal(states.PENDING), table.c.available_at <= now]
    if leased.deadline is not None:
        due.append(leased.deadline > now)
    picked = (
        sa.select(leased.key)
        .where(*due)
        .order_by(table.c.available_at, table.c.arrival)
        .limit(sa.bindparam("p_limit", type_=sa.Integer()))
        .with_for_update(skip_locked=True, key_share=True)
        .cte("picked")
    )
    owner = sa.bindparam("p_owner", type_=sa.Text())
    values = {
        "state": literal(leased.held),
        "owner": owner,
        "last_owner": owner,
        "lease_until": sa.bindparam("p_lease_until", type_=sa.Double()),
        "fence": table.c.fence + sa.literal_column("1"),
        "attempts": table.c.attempts + sa.literal_column("1"),
    }
    change = sa.update(table).where(leased.key.in_(sa.select(picked.c[leased.key.name]))).values(values)
    return change.returning(*table.c)


def lock(connection: sa.Connection, leased: Leased, identity: object) -> sa.Row[Any] | None:
    """Lock one row and return it, waiting for whoever has it. None where there is no such row."""
    if not is_text_key(identity):
        return None
    return connection.execute(_lock(leased), {"p_key": identity}).one_or_none()


@cache
def _lock(leased: Leased) -> sa.Select[Any]:
    by_key = leased.key == sa.bindparam("p_key", type_=sa.Text())
    return sa.select(leased.table).where(by_key).with_for_update(key_share=True)


def hold(
    connection: sa.Connection, leased: Leased, identity: str, owner: str, fence: int, hand: ManualClock | None
) -> tuple[sa.Row[Any], float]:
    """Lock the row of a claim and prove that the claim still owns it; return the row and the time.

    Raises Fenced for a row that is gone, not held, held by another owner or fence, or whose lease or deadline is over
    (`<=` now), also when nobody has taken it yet.
    """
    row = lock(connection, leased, identity)
    if row is None:
        raise Fenced(str(identity) if is_text_key(identity) else "an unknown row", fence, "there is no such row")
    now = clock.read(connection, hand)
    why = _broken(row, leased, owner, fence, now)
    if why:
        raise Fenced(identity, fence, why)
    return row, now


def _broken(row: sa.Row[Any], leased: Leased, owner: str, fence: int, now: float) -> str | None:
    if row.state != leased.held:
        return f"it is {row.state}"
    if row.fence != fence:
        return "it was claimed again since"
    if row.owner != owner:
        return "somebody else holds it"
    if row.lease_until <= now:
        return "its lease is over"
    if leased.deadline is not None and row.deadline <= now:
        return "its deadline is over"
    return None


def write(
    connection: sa.Connection, leased: Leased, rows: Sequence[sa.Row[Any]], target: str, values: dict[str, Any]
) -> None:
    """Move locked rows to `target` with `values`. Raises Fenced unless exactly these rows were moved.

    The states that allow the move come from the table of moves. A single row is also named by its fence.
    """
    table = leased.table
    allowed = table.c.state.in_([literal(state) for state in states.sources(leased.moves, target)])
    names = {f"p_key_{index}": row._mapping[leased.key] for index, row in enumerate(rows)}
    change = sa.update(table).where(leased.key.in_([sa.bindparam(name, value) for name, value in names.items()]))
    if len(rows) == 1:
        change = change.where(table.c.fence == sa.bindparam("p_fence", rows[0].fence))
    done = connection.execute(change.where(allowed).values(state=literal(target), **values))
    if done.rowcount != len(rows):
        raise Fenced(str(rows[0]._mapping[leased.key]), rows[0].fence, "the row changed under its lock")


def freed(available_at: float) -> dict[str, Any]:
    """The columns of a row that goes back to where anybody may take it from `available_at` on."""
    return {"owner": None, "lease_until": None, "available_at": available_at}


def due(connection: sa.Connection, leased: Leased, column: str, now: float, limit: int) -> Sequence[sa.Row[Any]]:
    """Lock up to `limit` rows whose `column` (`deadline` or `lease_until`) is over, passing over what others hold."""
    if limit <= 0:
        return []
    found = connection.execute(_due(leased, column), {"p_now": now, "p_limit": limit}).all()
    return sorted(found, key=lambda row: row._mapping[leased.key])


def due_ids(connection: sa.Connection, leased: Leased, column: str, now: float, after: str) -> list[str]:
    """The keys of the next rows whose `column` is over, in key order after `after`. Locks nothing."""
    over = sa.and_(_is_over(leased, column), leased.key > sa.bindparam("p_after", type_=sa.Text()))
    statement = sa.select(leased.key).where(over).order_by(leased.key).limit(SETTLE_ROWS_MAX)
    return list(connection.execute(statement, {"p_now": now, "p_after": after}).scalars())


@cache
def _due(leased: Leased, column: str) -> sa.Select[Any]:
    over, limit = leased.table.c[column], sa.bindparam("p_limit", type_=sa.Integer())
    statement = sa.select(leased.table).where(_is_over(leased, column)).order_by(over, leased.key).limit(limit)
    return statement.with_for_update(skip_locked=True, key_share=True)


def _is_over(leased: Leased, column: str, now: sa.ColumnElement[float] | None = None) -> sa.ColumnElement[bool]:
    # The states are written as the partial index of the same question writes them.
    open_states = (leased.held,) if column == "lease_until" else states.TASK_OPEN
    time = sa.bindparam("p_now", type_=sa.Double()) if now is None else now
    state = leased.table.c.state
    held = state == literal(open_states[0]) if len(open_states) == 1 else state.in_([literal(s) for s in open_states])
    return sa.and_(held, leased.table.c[column] <= time)


def look(connection: sa.Connection, leased: Leased, hand: ManualClock | None) -> tuple[float, bool]:
    """Read the clock, and whether anything is due to be settled, in one statement."""
    server = of(connection).clock
    if hand is not None or server is None:
        now = clock.read(connection, hand)
        return now, bool(connection.execute(_look(leased, None), {"p_now": now}).one()[1])
    row = connection.execute(_look(leased, server)).one()
    return float(row[0]), bool(row[1])


@cache
def _look(leased: Leased, server: sa.ColumnElement[float] | None) -> sa.Select[Any]:
    given = sa.bindparam("p_now", type_=sa.Double()) if server is None else server
    reading = sa.select(given.label("now")).cte("reading")
    once = sa.select(reading.c.now).scalar_subquery()
    columns = ["lease_until"] + ([] if leased.deadline is None else ["deadline"])
    anything = [sa.exists(sa.select(leased.key).where(_is_over(leased, column, once))) for column in columns]
    return sa.select(reading.c.now, sa.or_(*anything))
