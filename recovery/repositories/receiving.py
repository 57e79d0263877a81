"""Storing messages with their tasks, in one statement where the backend composes.

What the parts are: `new` are the inbox rows that were not there before, with the clock as each of them was in; `fresh`
what becomes of their tasks at the latest of these times; then tasks, replies of those that ended at once, and journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa

from recovery import clock, states
from recovery.admission import Admitted
from recovery.backend import Backend, change_each, param, ready, rows, rows_each, unnested
from recovery.canonical import canonical_json, reply_text
from recovery.repositories.adding import add, adding
from recovery.repositories.base import Repository
from recovery.repositories.journal import COLUMNS, TASK, first, noted
from recovery.repositories.leases import literal
from recovery.repositories.outbox import OutboxRepository
from recovery.schema import Tables

ENDED_AT_ONCE = {states.EXPIRED: states.DEADLINE_REACHED, states.HOP_LIMIT: states.HOPS_REACHED}
"""The states of a task that can never be claimed, each with its reason."""
ZERO: Final[sa.ColumnElement[int]] = sa.literal_column("0")


def store(room: Repository, admitted: Sequence[Admitted]) -> set[str]:
    """Store what is not stored yet, in the order given, and return the ids of what was new. No id stands twice."""
    return (_composed if room.backend.composes else _in_steps)(room, admitted)


def stored(room: Repository, task_ids: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """The fingerprint and its scope of each message that is in the inbox, by task id."""
    if room.backend.composes:
        found = rows(room.connection, _stored, (room.tables, room.backend), {"p_key": list(task_ids)})
    else:
        given = [{"key": task_id} for task_id in task_ids]
        found = rows_each(room.connection, _stored, (room.tables, room.backend), given)
    return {row.task_id: (row.fingerprint, row.scope_name) for row in found}


def _stored(tables: Tables, at: Backend) -> sa.Select[Any]:
    inbox = tables.inbox
    asked = sa.select(inbox.c.task_id, inbox.c.fingerprint, inbox.c.scope_name, at.confirming.label("confirmed"))
    if at.composes:
        return asked.where(inbox.c.task_id == sa.any_(sa.bindparam("p_key", type_=sa.ARRAY(sa.Text()))))
    return asked.where(inbox.c.task_id == param("key", sa.Text()))


# In steps


def _in_steps(room: Repository, admitted: Sequence[Admitted]) -> set[str]:
    ready(room.connection, ("receive", room.tables), lambda: _statements(room))
    now = clock.read(room.connection, room.settings.clock)
    new = _new_in_steps(room, admitted)
    tasks = [_task(one, now, room.settings.max_hops) for one in new]
    add(room.connection, room.tables.tasks, tasks)
    moves = [first(TASK, task["task_id"], now, task["state"], task["reason"] or "received") for task in tasks]
    ended = [(task["task_id"], task["state"], canonical_json(task["reason"])) for task in tasks if task["reason"]]
    if ended:
        moves += OutboxRepository(room.connection, room.settings).put(ended, now)
    add(room.connection, room.tables.journal, moves)
    return {one.task_id for one in new}


TASK_COLUMNS: Final = (
    "task_id", "queue", "priority", "state", "payload", "deadline", "hops", "max_attempts", "attempts", "fence",
    "available_at", "received_at", "reason", "ended_at",
)  # fmt: skip
"""The columns of a new task, in the order in which they are written."""


def _statements(room: Repository) -> list[Any]:
    tables, at = room.tables, room.backend
    columns = (adding(tables.tasks, TASK_COLUMNS, at), adding(tables.journal, COLUMNS, at))
    return [(_insert, (tables, at)), *columns]


def _new_in_steps(room: Repository, admitted: Sequence[Admitted]) -> Sequence[Admitted]:
    """Insert the inbox rows that are not there yet, and return their messages."""
    given = [_inbox_values(one) for one in admitted]
    inserted = change_each(room.connection, _insert, (room.tables, room.backend), given)
    return [one for one, is_new in zip(admitted, inserted, strict=True) if is_new]


def _insert(tables: Tables, at: Backend) -> Any:
    values = {f"{name}": param(name, sa.Text()) for name in _INBOX}
    return at.insert_new(tables.inbox, "task_id").values(**values).inline()


_INBOX = ("task_id", "principal", "message_id", "kind", "fingerprint")
_picked = attrgetter(*_INBOX)


def _inbox_values(one: Admitted) -> dict[str, str]:
    return dict(zip(_INBOX, _picked(one), strict=True))


def _task(admitted: Admitted, now: float, max_hops: int) -> dict[str, Any]:
    state = states.PENDING
    if admitted.deadline <= now:
        state = states.EXPIRED
    elif admitted.hops >= max_hops:
        state = states.HOP_LIMIT
    return {
        "task_id": admitted.task_id,
        "queue": admitted.queue,
        "priority": admitted.priority,
        "state": state,
        "payload": admitted.payload,
        "deadline": admitted.deadline,
        "hops": admitted.hops,
        "max_attempts": admitted.max_attempts,
        "attempts": 0,
        "fence": 0,
        "available_at": now,
        "received_at": now,
        "reason": ENDED_AT_ONCE.get(state),
        "ended_at": None if state == states.PENDING else now,
    }


# In one statement

_GIVEN = {
    "task_id": sa.Text(),
    "principal": sa.Text(),
    "message_id": sa.Text(),
    "fingerprint": sa.Text(),
    "queue": sa.Text(),
    "priority": sa.Integer(),
    "payload": sa.Text(),
    "deadline": sa.Double(),
    "hops": sa.BigInteger(),
    "max_attempts": sa.BigInteger(),
}


def _composed(room: Repository, admitted: Sequence[Admitted]) -> set[str]:
    values: dict[str, Any] = {f"p_{name}": [getattr(one, name) for one in admitted] for name in _GIVEN}
    values |= {"p_max_hops": room.settings.max_hops, "p_delivery_attempts": room.settings.delivery_attempts}
    arguments = (room.tables, room.hand, room.backend)
    return {row.task_id for row in rows(room.connection, receive_statement, arguments, values | room.hand_time())}


def receive_statement(tables: Tables, hand: clock.Hand, at: Backend) -> sa.Select[Any]:
    """Store many messages; the answer is the ids of those that are new."""
    given = unnested("given", **_GIVEN)
    now = clock.expression(at, hand)
    inbox, tasks = tables.inbox, tables.tasks
    # In id order, so that two batches with the same messages in another order cannot wait for each other. RETURNING is
    # evaluated after the row is in, however long it waited for another sender of the same one.
    columns = [given.c[name] for name in _INBOX if name != "kind"]
    chosen = sa.select(*columns, literal("task")).order_by(given.c.task_id)
    names = [*(name for name in _INBOX if name != "kind"), "kind"]
    insert = at.insert_new(inbox, "task_id").from_select(names, chosen).inline()
    new = insert.returning(inbox.c.task_id, now.label("read_at")).cte("new")
    reading = sa.select(sa.func.max(new.c.read_at).label("read_at")).cte("reading")
    fresh = _fresh(given, new, reading).cte("fresh")
    zero = ZERO
    row: dict[str, Any] = {
        name: fresh.c[name] for name in ("task_id", "queue", "priority", "state", "payload", "deadline", "hops")
    }
    row |= {"max_attempts": fresh.c.max_attempts, "attempts": zero, "fence": zero, "available_at": fresh.c.read_at}
    ended_at = sa.case((fresh.c.reason.is_not(None), fresh.c.read_at))
    row |= {"received_at": fresh.c.read_at, "reason": fresh.c.reason, "ended_at": ended_at}
    made = sa.insert(tasks).from_select(list(row), sa.select(*row.values()).order_by(fresh.c.ord)).inline()
    answer = sa.select(new.c.task_id)
    return answer.add_cte(made.cte("made"), _replied(tables, fresh), noted(tables.journal, _moves(fresh)))


def _fresh(given: sa.TableValuedAlias, new: sa.CTE, reading: sa.CTE) -> sa.Select[Any]:
    late = given.c.deadline <= reading.c.read_at
    far = given.c.hops >= param("max_hops", sa.BigInteger())
    state = sa.case((late, literal(states.EXPIRED)), (far, literal(states.HOP_LIMIT)), else_=literal(states.PENDING))
    reason = sa.case((late, literal(states.DEADLINE_REACHED)), (far, literal(states.HOPS_REACHED)))
    columns = [given.c[name] for name in (*_GIVEN, "ord")]
    # Not by a join: its plan may compare each message with each.
    is_new = given.c.task_id.in_(sa.select(new.c.task_id)).is_(sa.true())
    joined = given.join(reading, sa.true())
    fresh = sa.select(*columns, reading.c.read_at, state.label("state"), reason.label("reason"))
    return fresh.select_from(joined).where(is_new)


def _replied(tables: Tables, fresh: sa.CTE) -> sa.CTE:
    def text(state: str) -> sa.ColumnElement[str]:
        # The task's id comes last in the canonical text, and is all that differs.
        whole = reply_text("", state, canonical_json(ENDED_AT_ONCE[state]))
        assert whole.endswith('""}')
        return literal(whole[:-2]) + fresh.c.task_id + literal('"}')

    zero = ZERO
    row = {
        "reply_id": literal("reply:") + fresh.c.task_id,
        "task_id": fresh.c.task_id,
        "status": fresh.c.state,
        "payload": sa.case(
            (fresh.c.state == literal(states.EXPIRED), text(states.EXPIRED)), else_=text(states.HOP_LIMIT)
        ),
        "state": literal(states.PENDING),
        "max_attempts": param("delivery_attempts", sa.BigInteger()),
        "attempts": zero,
        "fence": zero,
        "available_at": fresh.c.read_at,
        "created_at": fresh.c.read_at,
    }
    ended = sa.select(*row.values()).where(fresh.c.reason.is_not(None)).order_by(fresh.c.ord)
    return sa.insert(tables.outbox).from_select(list(row), ended).inline().cte("replied")


def _moves(fresh: sa.CTE) -> sa.Select[Any]:
    zero, nobody = ZERO, sa.cast(sa.null(), sa.Text())

    def moves(step: str, subject: str, target: Any, why: Any) -> sa.Select[Any]:
        common = [fresh.c.ord, sa.literal_column(step).label("step"), fresh.c.read_at, fresh.c.task_id]
        what = [literal(subject).label("subject"), literal(states.NEW).label("from_state"), target.label("to_state")]
        who = [nobody.label("owner"), zero.label("fence"), zero.label("attempt"), why.label("why")]
        return sa.select(*common, *what, *who)

    tasks = moves("0", "task", fresh.c.state, sa.func.coalesce(fresh.c.reason, literal("received")))
    replies = moves("1", "reply", literal(states.PENDING), literal("task ") + fresh.c.state)
    both = sa.union_all(tasks, replies.where(fresh.c.reason.is_not(None))).subquery("both")
    return sa.select(*list(both.c)[2:]).order_by(both.c.step, both.c.ord)
