"""Ending what is held, in one statement: lock, read the clock, check the claim, write, reply and note.

Only where the backend composes. Each part is fed by the one before, so that the order is the order of the contract:
`locked` has the rows as they are once their locks were got, `reading` the clock after all of them, `held` those whose
claim still owns them. What is not among `held` is not touched, and the answer tells why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from recovery import clock, states
from recovery.backend import Backend, param, unnested
from recovery.repositories.claiming import Several, claim_part
from recovery.repositories.journal import COLUMNS, noted
from recovery.repositories.leases import Leased, literal
from recovery.schema import Tables

NOTHING = sa.null()


@dataclass(frozen=True, slots=True)
class Held:
    """The first parts of a statement over claims that were handed in."""

    locked: sa.CTE
    reading: sa.CTE
    held: sa.CTE


def held_part(leased: Leased, given: sa.TableValuedAlias, now: sa.ColumnElement[float], *more: Any) -> Held:
    """Lock the rows of `given` (key, owner and fence of each claim, and `ord`), and keep those still owned.

    Locks are taken in the order of the keys. `more` are columns of `given` or of the row that later parts want.
    """
    seen = [column.label(f"row_{column.name}") for column in leased.columns if column is not leased.key]
    columns = [given.c.ord, given.c.key, given.c.owner, given.c.fence, *more, *seen]
    rows = given.join(leased.table, leased.key == given.c.key)
    lock = sa.select(*columns).select_from(rows).order_by(leased.key)
    locked = lock.with_for_update(key_share=True, of=leased.table).cte("locked")
    # Counting waits for all of the locks; only then is the clock read.
    all_locked = sa.select(sa.func.count().label("n")).select_from(locked).subquery("all_locked")
    reading = sa.select(now.label("read_at")).select_from(all_locked).cte("reading")
    mine = [
        locked.c.row_state == literal(leased.held),
        locked.c.row_owner == locked.c.owner,
        locked.c.row_fence == locked.c.fence,
        locked.c.row_lease_until > reading.c.read_at,
    ]
    if leased.deadline is not None:
        mine.append(locked.c.row_deadline > reading.c.read_at)
    held = sa.select(locked, reading.c.read_at).join_from(locked, reading, sa.true()).where(*mine).cte("held")
    return Held(locked, reading, held)


def _answer(parts: Held, moved: sa.CTE, *more: Any) -> sa.Select[Any]:
    """One row for each row that was found: what it was, when, and whether it was moved."""
    locked = parts.locked
    plain = [c.label(c.name.removeprefix("row_")) for c in locked.c if c.name.startswith("row_")]
    # Not by a join: its plan may compare each row with each.
    was_moved = locked.c.key.in_(sa.select(moved.c.key))
    columns = [locked.c.ord, parts.reading.c.read_at, was_moved.label("moved"), *plain, *more]
    return sa.select(*columns).select_from(locked.join(parts.reading, sa.true()))


def _finish(
    tables: Tables, leased: Leased, hand: clock.Hand, at: Backend
) -> tuple[Held, sa.CTE, sa.CTE, sa.Select[Any]]:
    text, whole = sa.Text(), sa.BigInteger()
    given = unnested("given", key=text, owner=text, fence=whole, result=text, reply_id=text, reply=text)
    tasks, outbox = tables.tasks, tables.outbox
    # A worker whose answer was lost asks again.
    again = sa.and_(
        tasks.c.fence == given.c.fence, tasks.c.last_owner == given.c.owner, tasks.c.result == given.c.result
    )
    more = (given.c.result, given.c.reply_id, given.c.reply, again.label("row_again"))
    parts = held_part(leased, given, clock.expression(at, hand), *more)
    held = parts.held
    # By key alone: the row is locked and proven. Its fence may be younger than what this statement began with.
    end = sa.update(tasks).where(tasks.c.task_id == held.c.key)
    values = {"state": literal(states.DONE), "owner": NOTHING, "lease_until": NOTHING, "result": held.c.result}
    ended = end.values(**values, ended_at=held.c.read_at).returning(tasks.c.task_id.label("key")).cte("ended")
    reply = {
        "reply_id": held.c.reply_id,
        "task_id": held.c.key,
        "status": literal(states.DONE),
        "payload": held.c.reply,
        "state": literal(states.PENDING),
        "max_attempts": param("delivery_attempts", whole),
        "attempts": sa.literal_column("0"),
        "fence": sa.literal_column("0"),
        "available_at": held.c.read_at,
        "created_at": held.c.read_at,
    }
    put = sa.insert(outbox).from_select(list(reply), sa.select(*reply.values()).order_by(held.c.ord))
    return parts, ended, put.inline().cte("put"), _finish_moves(held)


def _finish_moves(held: sa.CTE) -> sa.Select[Any]:
    """The task's move and the reply's first one, for each task, with the columns that they are ordered by."""
    zero: sa.ColumnElement[int] = sa.literal_column("0")
    nobody = sa.cast(NOTHING, sa.Text())
    steps = sa.func.generate_series(zero, sa.literal_column("1")).table_valued("step", name="steps").render_derived()
    is_task = steps.c.step == zero

    def either(task: Any, reply: Any) -> Any:
        return sa.case((is_task, task), else_=reply)

    columns = (
        held.c.read_at,
        held.c.key,
        either(literal("task"), literal("reply")),
        either(literal(states.RUNNING), literal(states.NEW)),
        either(literal(states.DONE), literal(states.PENDING)),
        either(held.c.owner, nobody),
        either(held.c.fence, zero),
        either(held.c.row_attempts, zero),
        either(literal("finished"), literal("task done")),
    )
    return _ordered(held.c.ord, steps.c.step, columns).select_from(held.join(steps, sa.true()))


def _ordered(ord_: Any, step: Any, columns: Sequence[Any]) -> sa.Select[Any]:
    named = [column.label(name) for column, name in zip(columns, COLUMNS, strict=True)]
    return sa.select(ord_.label("ord"), step.label("step"), *named)


def _noted(tables: Tables, *moves: sa.Select[Any]) -> sa.CTE:
    """One INSERT for all moves: of several in one statement nobody promises which comes first."""
    every = (sa.union_all(*moves) if len(moves) > 1 else moves[0]).subquery("every")
    return noted(tables.journal, sa.select(*(every.c[name] for name in COLUMNS)).order_by(every.c.ord, every.c.step))


def finish_statement(tables: Tables, leased: Leased, hand: clock.Hand, at: Backend) -> sa.Select[Any]:
    """Finish many tasks, each claim by itself."""
    parts, ended, put, moves = _finish(tables, leased, hand, at)
    return _answer(parts, ended).add_cte(put, _noted(tables, moves))


def finish_and_claim_statement(
    tables: Tables, leased: Leased, several: Several, hand: clock.Hand, at: Backend
) -> sa.Select[Any]:
    """Finish one task, and if that was right, take the next one."""
    parts, ended, put, moves = _finish(tables, leased, hand, at)
    finished = sa.exists(sa.select(sa.literal_column("1")).select_from(ended))
    claim = claim_part(leased, parts.reading, several, finished)
    answer = _answer(parts, ended, claim.seen.c.due)
    taken = [column.label(f"next_{column.name}") for column in claim.taken.c]
    joined = answer.add_columns(*taken).join(claim.seen, sa.true()).outerjoin(claim.taken, sa.true())
    after: sa.ColumnElement[int] = sa.literal_column("2")  # One task is finished, in steps 0 and 1, and one is taken.
    return joined.add_cte(put, _noted(tables, moves, _ordered(sa.literal_column("1"), after, claim.moves)))


def settle_statement(tables: Tables, leased: Leased, hand: clock.Hand, at: Backend) -> sa.Select[Any]:
    """Store what became of many deliveries, each by itself."""
    text = sa.Text()
    kinds = {"delivered": sa.Boolean(), "permanent": sa.Boolean(), "said": text, "wait_seconds": sa.Double()}
    given = unnested("given", key=text, owner=text, fence=sa.BigInteger(), **kinds)
    parts = held_part(leased, given, clock.expression(at, hand), *(given.c[name] for name in kinds))
    held, outbox = parts.held, tables.outbox
    target = _target(held)
    again = target == literal(states.PENDING)
    settle = sa.update(outbox).where(outbox.c.reply_id == held.c.key)
    settled = (
        settle.values(
            state=target,
            owner=NOTHING,
            lease_until=NOTHING,
            available_at=sa.case((again, held.c.read_at + held.c.wait_seconds), else_=outbox.c.available_at),
            settled_at=sa.case((again, outbox.c.settled_at), else_=held.c.read_at),
            last_error=sa.case((held.c.delivered, NOTHING), else_=held.c.said),
        )
        .returning(outbox.c.reply_id.label("key"))
        .cte("settled")
    )
    why = sa.case((held.c.delivered, literal("receipt stored")), else_=held.c.said)
    who = (held.c.owner, held.c.fence, held.c.row_attempts)
    moves = sa.select(
        held.c.read_at, held.c.row_task_id, literal("reply"), literal(states.SENDING), target, *who, why
    ).order_by(held.c.ord)
    return _answer(parts, settled, _target(parts.locked).label("target")).add_cte(noted(tables.journal, moves))


def _target(delivery: sa.CTE) -> sa.Case[str]:
    """Where a reply goes that its dispatcher still holds."""
    spent = sa.or_(delivery.c.permanent, delivery.c.row_attempts >= delivery.c.row_max_attempts)
    sent = (delivery.c.delivered, literal(states.SENT))
    return sa.case(sent, (spent, literal(states.DEAD)), else_=literal(states.PENDING))
