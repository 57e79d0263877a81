"""Leases over any leased table: hold, write, and find what is due. `claiming` is how a lease begins.

A lease is a whole or nothing: an owner, a time at which it is over, and a fence that only grows. Whoever wants to
change a held row first locks it, then reads the clock, then checks the lease; in that order, because the check is
worth nothing if the lease can run out while the lock is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import sqlalchemy as sa

from recovery import clock, states
from recovery.accepting import is_text_key
from recovery.backend import Backend, change, change_rows, of, param, rows, rows_each, unnested
from recovery.clock import ManualClock
from recovery.errors import Fenced, StatementFailed
from recovery.schema import Tables

SETTLE_ROWS_MAX = 100
FENCE_MAX = 2**63 - 1
UNCHANGED = "a row that its claim still owns was not changed; the transaction was rolled back."
Row: TypeAlias = Any
"""A named tuple with the columns of `Leased.columns`."""


@dataclass(frozen=True, slots=True, eq=False)
class Leased:
    """A table whose rows can be held: its key, its moves, and the state of a row that somebody holds."""

    table: sa.Table
    floor: sa.Table
    journal: sa.Table
    key: sa.Column[str]
    moves: states.Moves
    held: str
    subject: str
    deadline: sa.Column[float] | None = None
    """The column after which a row can no longer be held; replies have none."""

    @property
    def columns(self) -> list[sa.Column[Any]]:
        """What a verb wants to know of a row that it has locked: never its payload, which may be large."""
        names = ("state", "owner", "last_owner", "fence", "attempts", "max_attempts", "lease_until", "deadline")
        return [self.key, *(c for c in self.table.c if c.name in names or (c.name == "task_id" and c is not self.key))]


@cache
def leased_tasks(tables: Tables) -> Leased:
    """Tasks, held by workers."""
    tasks, deadline = tables.tasks, tables.tasks.c.deadline
    moves, held = states.TASK_MOVES, states.RUNNING
    return Leased(tasks, tables.fence_floor, tables.journal, tasks.c.task_id, moves, held, "task", deadline)


@cache
def leased_replies(tables: Tables) -> Leased:
    """Replies, held by dispatchers."""
    outbox = tables.outbox
    return Leased(
        outbox, tables.fence_floor, tables.journal, outbox.c.reply_id, states.REPLY_MOVES, states.SENDING, "reply"
    )


def literal(state: str) -> sa.ColumnElement[str]:
    """A state as text in the statement: a bound one keeps PostgreSQL from using the partial indexes."""
    return sa.literal_column(f"'{state}'", sa.Text())


def lock(connection: sa.Connection, leased: Leased, identity: object) -> Row | None:
    """Lock one row and return it, waiting for whoever has it. None where there is no such row."""
    if not is_text_key(identity):
        return None
    found = rows(connection, _lock, (leased,), {"p_key": identity})
    return found[0] if found else None


def locked(connection: sa.Connection, leased: Leased, keys: Sequence[object]) -> dict[str, Row]:
    """Lock rows and return those that are there, by key. What is no text key is the key of none."""
    known = [{"key": key} for key in keys if is_text_key(key)]
    found = rows_each(connection, _lock, (leased,), known)
    return {getattr(row, leased.key.name): row for row in found}


def _lock(leased: Leased) -> sa.Select[Any]:
    by_key = leased.key == param("key", sa.Text())
    return sa.select(*leased.columns).where(by_key).with_for_update(key_share=True)


def hold(
    connection: sa.Connection, leased: Leased, identity: str, owner: str, fence: int, hand: ManualClock | None
) -> tuple[Row, float]:
    """Lock the row of a claim and prove that the claim still owns it; return the row and the time.

    Raises Fenced for a row that is gone, not held, held by another owner or fence, or whose lease or deadline is over
    (`<=` now), also when nobody has taken it yet.
    """
    row = lock(connection, leased, identity)
    now = 0.0 if row is None else clock.read(connection, hand)
    refused = broken(row, leased, identity, owner, fence, now)
    if refused is not None:
        raise refused
    return row, now


def broken(row: Row | None, leased: Leased, identity: object, owner: str, fence: int, now: float) -> Fenced | None:
    """Why a claim no longer owns its row, at `now`; None where it does."""
    if row is None:
        known = identity if is_text_key(identity) else "an unknown row"
        return Fenced(str(known), fence, "there is no such row")
    why = _broken(row, leased, owner, fence, now)
    return Fenced(str(identity), fence, why) if why else None


def _broken(row: Row, leased: Leased, owner: str, fence: int, now: float) -> str | None:
    if row.state != leased.held:
        return f"it is {row.state}"
    if type(fence) is not int or row.fence != fence:  # True equals 1, and was never handed out.
        return "it was claimed again since"
    if type(owner) is not str or row.owner != owner:  # A subclass may be equal to anything.
        return "somebody else holds it"
    if row.lease_until <= now:
        return "its lease is over"
    if leased.deadline is not None and row.deadline <= now:
        return "its deadline is over"
    return None


def write(
    connection: sa.Connection,
    leased: Leased,
    locked: Sequence[Row],
    target: str,
    values: dict[str, Any],
    each: Sequence[dict[str, Any]] = (),
) -> None:
    """Move locked rows to `target` with `values`. Raises StatementFailed unless exactly these rows were moved.

    Each was seen in a state that allows the move, else Fenced is raised; it is named by its key and its fence. `each`
    are values that differ from row to row.
    """
    allowed = _allowed(leased, target)
    key = leased.key.name
    sets = []
    for row, own in zip(locked, each or [{}] * len(locked), strict=True):
        if row.state not in allowed:
            raise Fenced(getattr(row, key), row.fence, "the row changed under its lock")
        sets.append({"key": getattr(row, key), "fence": row.fence, **values, **own})
    own_names = tuple(each[0]) if each else ()
    arguments = (leased, target, (*values, *own_names), own_names, of(connection))
    if change_rows(connection, _write, arguments, sets, ("key", "fence", *own_names)) != len(locked):
        raise StatementFailed(UNCHANGED)


@cache
def _allowed(leased: Leased, target: str) -> frozenset[str]:
    return frozenset(states.sources(leased.moves, target))


def _write(leased: Leased, target: str, names: tuple[str, ...], own: tuple[str, ...], backend: Backend) -> sa.Update:
    # By key and fence alone: a state in the WHERE lets PostgreSQL answer from the partial index of that state.
    table = leased.table
    values: dict[str, Any] = {name: param(name, table.c[name].type) for name in names}
    if not backend.composes:
        mine = (leased.key == param("key", sa.Text()), table.c.fence == param("fence", sa.BigInteger()))
        return sa.update(table).where(*mine).values(state=literal(target), **values)
    kinds = {name: table.c[name].type for name in own}
    given = unnested("given", key=sa.Text(), fence=sa.BigInteger(), **kinds)
    values |= {name: given.c[name] for name in own}
    mine = (leased.key == given.c.key, table.c.fence == given.c.fence)
    return sa.update(table).where(*mine).values(state=literal(target), **values)


def is_sendable(claim: Any) -> bool:
    """Whether a claim could be of a stored row at all. One that was made up is compared here, not by the database."""
    known = is_text_key(claim.owner) and type(claim.fence) is int and 0 <= claim.fence <= FENCE_MAX
    return known and is_text_key(identity(claim))


def identity(claim: Any) -> Any:
    """The id of the row that a Claim or a Delivery is of."""
    return claim.task_id if hasattr(claim, "task_id") else claim.reply_id


def extend(connection: sa.Connection, leased: Leased, row: Row, until: float) -> None:
    """Give a held row a longer lease. Raises StatementFailed where it did not get it."""
    values = {"p_key": getattr(row, leased.key.name), "p_fence": row.fence, "p_lease_until": until}
    if change(connection, _extend, (leased,), values) != 1:
        raise StatementFailed(UNCHANGED)


def _extend(leased: Leased) -> sa.Update:
    mine = sa.and_(leased.key == param("key", sa.Text()), leased.table.c.fence == param("fence", sa.BigInteger()))
    return sa.update(leased.table).where(mine).values(lease_until=param("lease_until"))


def freed(available_at: float) -> dict[str, Any]:
    """The columns of a row that goes back to where anybody may take it from `available_at` on."""
    return {"owner": None, "lease_until": None, "available_at": available_at}


def due(connection: sa.Connection, leased: Leased, column: str, now: float, limit: int) -> Sequence[Row]:
    """Lock up to `limit` rows whose `column` (`deadline` or `lease_until`) is over, passing over what others hold."""
    if limit <= 0:
        return []
    found = rows(connection, _due, (leased, column), {"p_now": now, "p_limit": limit})
    return sorted(found, key=lambda row: getattr(row, leased.key.name))


def due_ids(connection: sa.Connection, leased: Leased, column: str, now: float, after: str) -> list[str]:
    """The keys of the next rows whose `column` is over, in key order after `after`. Locks nothing."""
    return [row[0] for row in rows(connection, _due_ids, (leased, column), {"p_now": now, "p_after": after})]


def _due_ids(leased: Leased, column: str) -> sa.Select[Any]:
    over = sa.and_(is_over(leased, column, param("now")), leased.key > param("after", sa.Text()))
    return sa.select(leased.key).where(over).order_by(leased.key).limit(sa.literal_column(str(SETTLE_ROWS_MAX)))


def _due(leased: Leased, column: str) -> sa.Select[Any]:
    over, limit = leased.table.c[column], param("limit", sa.Integer())
    due_now = is_over(leased, column, param("now"))
    statement = sa.select(*leased.columns).where(due_now).order_by(over, leased.key).limit(limit)
    return statement.with_for_update(skip_locked=True, key_share=True)


def is_over(leased: Leased, column: str, now: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Whether an open row's `column` is over at `now`."""
    # The states are written as the partial index of the same question writes them.
    open_states = (leased.held,) if column == "lease_until" else states.TASK_OPEN
    state = leased.table.c.state
    held = state == literal(open_states[0]) if len(open_states) == 1 else state.in_([literal(s) for s in open_states])
    return sa.and_(held, leased.table.c[column] <= now)
