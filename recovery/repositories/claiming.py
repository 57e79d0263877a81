"""How a lease begins: settle what is due, take the rows that are due first, and note it.

Where the backend composes, that is one statement: it looks whether anything is to be settled, takes rows only if not,
and writes the journal. Elsewhere the look is a part of taking, the journal a statement of its own, and the write lock
keeps others out.

Rows are probed one queue and one priority at a time, each by the index that begins with them. A single look over all
priorities would have to pass over every row that is more important but not yet due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import sqlalchemy as sa

from recovery import clock, states
from recovery.backend import Backend, of, param, ready, rows, unnested
from recovery.clock import ManualClock
from recovery.repositories.adding import add, adding
from recovery.repositories.journal import COLUMNS, noted, transition
from recovery.repositories.leases import Leased, is_over, literal
from recovery.repositories.settling import settling

PRIORITIES: Final = tuple(range(9, -1, -1))
"""Higher is first."""
LONG_AGO: Final = -float(2**53)
Row: TypeAlias = Any
Several: TypeAlias = Literal["one", "several"]
Settle: TypeAlias = Callable[[float], object]
"""Settles what is due at a time, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for: by whom, how many, for how long, and from which queues (none where rows have no queue)."""

    owner: str
    limit: int
    lease_seconds: float
    queues: tuple[str, ...] = ()

    @property
    def several(self) -> Several:
        """Whether rows of several queues have to be merged."""
        return "several" if len(self.queues) > 1 else "one"


@dataclass(slots=True)
class Marks:
    """How far this connection has looked, so that it need not look again at what is surely behind it.

    While an old transaction is open, PostgreSQL keeps every index entry of a row that was claimed or ended since, and
    each probe would pass over all of them. So a probe begins a little before the last row that was taken, and a look
    for what is due begins where the last one that found nothing ended. Rows can still come in behind a mark (a
    transaction that took long to commit): every second, and whenever nothing was found, the whole is looked at.
    """

    probes: dict[tuple[str, int], float] = field(default_factory=dict)
    looked_until: float = LONG_AGO
    whole_at: float = 0.0

    @property
    def are_none(self) -> bool:
        """Whether the next look is at the whole."""
        return not self.probes and self.looked_until == LONG_AGO

    def forget_in_time(self) -> None:
        """Look at the whole again once a second."""
        if time.monotonic() >= self.whole_at:
            self.forget()

    def forget(self) -> None:
        """Look at the whole the next time."""
        self.probes.clear()
        self.looked_until = LONG_AGO
        self.whole_at = time.monotonic() + WHOLE_SECONDS


WHOLE_SECONDS: Final = 1.0
MARGIN_SECONDS: Final = 0.2
"""How long a sender may take from its reading of the clock to its commit and not be overtaken."""


def claim(
    connection: sa.Connection,
    leased: Leased,
    ask: Ask,
    hand: ManualClock | None,
    settle: Settle | None,
) -> list[Row]:
    """Hold up to `ask.limit` due rows, and return them in order: priority, when they became due, arrival.

    `settle(now)` is called before where something is to be settled. Rows that others have locked are passed over.
    """
    at = of(connection)
    if at.composes:
        return _composed(connection, leased, ask, hand, settle)
    take = get_ready(connection, leased, ask, looks=settle is not None)
    now = clock.read(connection, hand)
    values = _values(ask, now)
    taken = rows(connection, _take, take, values)
    if not taken and settle is not None and _is_something_due(connection, leased, now):
        with settling(at):
            settle(now)
        taken = rows(connection, _take, (leased, len(ask.queues), False), values)
    taken.sort(key=_order)
    moves = [transition(leased.subject, row, now, leased.held, "claimed", from_state=states.PENDING) for row in taken]
    add(connection, leased.journal, moves)
    return taken


def get_ready(connection: sa.Connection, leased: Leased, ask: Ask, *, looks: bool) -> tuple[Leased, int, bool]:
    """Build what a claim in steps sends, before its transaction begins; return what its first statement is made of."""
    take = (leased, len(ask.queues), looks)
    ready(connection, ("claim", take), lambda: [(_take, take), adding(leased.journal, COLUMNS, of(connection))])
    return take


def _order(row: Row) -> tuple[int, float, int]:
    return (-getattr(row, "priority", 0), row.available_at, row.arrival)


def _values(ask: Ask, now: float) -> dict[str, Any]:
    queues = {f"p_queue_{index}": queue for index, queue in enumerate(ask.queues)}
    until = now + ask.lease_seconds
    return {"p_now": now, "p_holder": ask.owner, "p_lease_until": until, "p_limit": ask.limit, **queues}


# In steps


def _is_something_due(connection: sa.Connection, leased: Leased, now: float) -> bool:
    return bool(rows(connection, _look, (leased,), {"p_now": now})[0].due)


def _look(leased: Leased) -> sa.Select[Any]:
    return sa.select(_something_over(leased, param("now")).label("due"))


def _something_over(
    leased: Leased, now: sa.ColumnElement[float], since: sa.ColumnElement[float] | None = None
) -> sa.ColumnElement[bool]:
    found = []
    for column in ("lease_until",) if leased.deadline is None else ("lease_until", "deadline"):
        over = is_over(leased, column, now)
        behind = sa.true() if since is None else leased.table.c[column] >= since
        one: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(leased.table).where(over, behind)
        found.append(_is_any(one.order_by(leased.table.c[column]).limit(sa.literal_column("1"))))
    return sa.or_(*found)


def _is_any(first: sa.Select[Any]) -> sa.ColumnElement[bool]:
    """Whether a look that stops at its first row found one.

    No EXISTS: PostgreSQL leaves the order out of that, and where its statistics say that most rows are due, as old
    ones do of every time that was still to come, it reads the table from its beginning to meet the first of them.
    """
    return first.scalar_subquery().is_not(None)


def anything(connection: sa.Connection, leased: Leased, queues: tuple[str, ...], hand: ManualClock | None) -> bool:
    """Whether a claim would find something to take or to settle. Locks nothing."""
    now = clock.read(connection, hand)
    named = {f"p_queue_{index}": queue for index, queue in enumerate(queues)}
    return bool(rows(connection, _anything, (leased, len(queues)), {"p_now": now, "p_limit": 1, **named})[0].found)


def _anything(leased: Leased, queues: int) -> sa.Select[Any]:
    waiting = _is_any(_probes(leased, queues, param("now")))
    return sa.select(sa.or_(_something_over(leased, param("now")), waiting).label("found"))


def _take(leased: Leased, queues: int, looks: bool) -> Any:  # noqa: FBT001 - it is a part of the statement's name
    """Take rows; where it `looks`, only if nothing is due to be settled before."""
    picked = _probes(leased, queues, param("now"))
    hold = _held(leased, {"lease_until": param("lease_until")}).where(leased.key.in_(picked))
    if looks:
        hold = hold.where(sa.not_(_something_over(leased, param("now"))))
    return hold.returning(*_returned(leased))


def _held(leased: Leased, values: dict[str, Any]) -> sa.Update:
    table, owner = leased.table, param("holder", sa.Text())
    # A row begins with fence 0. An older task of the same id may have been purged, and the floor is above its fences.
    floor = sa.select(leased.floor.c.floor).scalar_subquery()
    fence = sa.case((table.c.fence < floor, floor), else_=table.c.fence) + sa.literal_column("1")
    attempts = table.c.attempts + sa.literal_column("1")
    held = {"state": literal(leased.held), "owner": owner, "last_owner": owner, "fence": fence, "attempts": attempts}
    return sa.update(table).values(**held, **values)


@cache
def _returned(leased: Leased) -> tuple[sa.Column[Any], ...]:
    names = ("task_id", "owner", "fence", "attempts", "payload", "lease_until", "deadline", "queue", "priority")
    others = [c for c in leased.table.c if c.name in (*names, "available_at", "arrival") and c is not leased.key]
    return (leased.key, *others)


def _waiting(leased: Leased, now: sa.ColumnElement[float], columns: Sequence[Any]) -> sa.Select[Any]:
    table = leased.table
    due = [table.c.state == literal(states.PENDING), table.c.available_at <= now]
    if leased.deadline is not None:
        due.append(leased.deadline > now)
    first = sa.select(*columns).where(*due).order_by(table.c.available_at, table.c.arrival)
    return first.limit(param("limit", sa.Integer()))


def _probes(leased: Leased, queues: int, now: sa.ColumnElement[float]) -> sa.Select[Any]:
    """The keys of the rows to take: one probe after another, each stopping at the limit, and so does the whole."""
    table = leased.table
    if not queues:
        return _waiting(leased, now, [leased.key])
    order = (table.c.priority, table.c.available_at, table.c.arrival) if queues > 1 else ()
    one: sa.Select[Any] = _waiting(leased, now, [leased.key, *order])
    probes = [
        one.where(
            table.c.queue == param(f"queue_{index}", sa.Text()), table.c.priority == sa.literal_column(str(number))
        )
        for number in PRIORITIES
        for index in range(queues)
    ]
    all_of_them = sa.union_all(*(sa.select(probe.subquery()) for probe in probes)).subquery("probes")
    # The probes come in order of priority, and are only asked one by one until the limit is reached. Within a priority
    # several queues have to be merged, and then all of them are asked.
    chosen = sa.select(all_of_them.c[leased.key.name])
    if queues > 1:
        chosen = chosen.order_by(all_of_them.c.priority.desc(), all_of_them.c.available_at, all_of_them.c.arrival)
    return chosen.limit(param("limit", sa.Integer()))


# In one statement


@dataclass(frozen=True, slots=True)
class Sent:
    """What a composed claim answered: the rows taken, when it looked, and whether something is due to be settled."""

    taken: list[Row]
    now: float
    due: bool


def _composed(
    connection: sa.Connection, leased: Leased, ask: Ask, hand: ManualClock | None, settle: Settle | None
) -> list[Row]:
    sent = _send(connection, leased, ask, hand, look=settle is not None)
    return follow_up(connection, leased, ask, hand, settle, sent)


def follow_up(
    connection: sa.Connection,
    leased: Leased,
    ask: Ask,
    hand: ManualClock | None,
    settle: Settle | None,
    sent: Sent,
) -> list[Row]:
    """Settle and take after all where something was due; where the marks hid everything, look at the whole."""
    marks = _kept_marks(connection, leased)
    taken = sent.taken
    if sent.due and settle is not None:
        with settling(of(connection)):
            settle(sent.now)
        marks.forget()
        taken = _send(connection, leased, ask, hand, look=False).taken
    elif not taken and not marks.are_none:
        marks.forget()
        return _composed(connection, leased, ask, hand, settle)
    elif taken and settle is not None:
        marks.looked_until = sent.now
    for row in taken:
        marks.probes[getattr(row, "queue", ""), getattr(row, "priority", 0)] = row.available_at - MARGIN_SECONDS
    return taken


def marks_of(connection: sa.Connection, leased: Leased) -> Marks:
    """How far this connection has looked into this table, for a look that is about to be sent."""
    marks = _kept_marks(connection, leased)
    marks.forget_in_time()
    return marks


def _kept_marks(connection: sa.Connection, leased: Leased) -> Marks:
    # As they were sent: forgotten now, the marks of this answer would take the place of the look at the whole.
    marks: Marks = connection.info.setdefault(("recovery.marks", leased), Marks())
    return marks


def _send(connection: sa.Connection, leased: Leased, ask: Ask, hand: ManualClock | None, *, look: bool) -> Sent:
    values = claim_values(ask, marks_of(connection, leased), look=look)
    at = of(connection)
    who = clock.by(at, hand)
    if who == "hand":
        values["p_now"] = clock.read(connection, hand)
    found = rows(connection, _claim_statement, (leased, ask.several, who, at), values)
    return Sent([row for row in found if row.fence is not None], found[0].read_at, found[0].due)


def claim_values(ask: Ask, marks: Marks, *, look: bool) -> dict[str, Any]:
    """The parameters of a composed claim."""
    values = {
        "p_holder": ask.owner,
        "p_lease_seconds": ask.lease_seconds,
        "p_limit": ask.limit,
        "p_look": look,
        "p_since": marks.looked_until,
    }
    if not ask.queues:
        return values | {"p_begin": marks.probes.get(("", 0), LONG_AGO)}
    if ask.several == "one":
        queue = ask.queues[0]
        return values | {"p_queue": queue, "p_begin": [marks.probes.get((queue, p), LONG_AGO) for p in PRIORITIES]}
    probes = [(queue, number) for number in PRIORITIES for queue in ask.queues]
    return values | {
        "p_queue": [queue for queue, _ in probes],
        "p_priority": [number for _, number in probes],
        "p_begin": [marks.probes.get(probe, LONG_AGO) for probe in probes],
    }


def _claim_statement(leased: Leased, several: Several, hand: clock.Hand, at: Backend) -> sa.Select[Any]:
    reading = sa.select(clock.expression(at, hand).label("read_at")).cte("reading")
    part = claim_part(leased, reading, several)
    whole = sa.select(part.seen, part.taken).select_from(part.seen.outerjoin(part.taken, sa.true()))
    moves = sa.select(*part.moves).order_by(*part.order)
    return whole.order_by(*part.order).add_cte(noted(leased.journal, moves))


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """A claim inside a composed statement.

    `seen` is one row (when it was, and whether something is due to be settled), `taken` the rows, `moves` what the
    journal is to say of each, `order` theirs.
    """

    seen: sa.CTE
    taken: sa.CTE
    moves: tuple[Any, ...]
    order: tuple[Any, ...]


def claim_part(leased: Leased, reading: sa.CTE, several: Several, only_if: Any = None) -> ClaimPart:
    """The parts of a claim. `reading` has the time as `read_at`.

    Rows are taken only where nothing is due to be settled, and only if `only_if` holds.
    """
    read_at = sa.select(reading.c.read_at).scalar_subquery()
    due = sa.and_(param("look", sa.Boolean()), _something_over(leased, read_at, param("since")))
    seen = sa.select(reading.c.read_at, due.label("due")).cte("seen")
    now = sa.select(seen.c.read_at).scalar_subquery()
    go = sa.select(sa.not_(seen.c.due)).scalar_subquery()
    picked = _picked(leased, several, now, [go] if only_if is None else [go, only_if])
    chosen = sa.func.array(picked.scalar_subquery(), type_=sa.ARRAY(sa.Text()))
    hold = _held(leased, {"lease_until": now + param("lease_seconds")}).where(leased.key == sa.any_(chosen))
    taken = hold.returning(*_returned(leased)).cte("taken")
    order = (*([taken.c.priority.desc()] if "priority" in taken.c else []), taken.c.available_at, taken.c.arrival)
    who = (taken.c.owner, taken.c.fence, taken.c.attempts)
    moved = (literal(leased.subject), literal(states.PENDING), literal(leased.held))
    return ClaimPart(seen, taken, (now, taken.c.task_id, *moved, *who, literal("claimed")), order)


def _probe(several: Several) -> tuple[sa.TableValuedAlias, Any, Any]:
    """What is probed, in order: a table with the mark of each probe, and its queue and priority."""
    if several == "several":
        probe = unnested("probe", queue=sa.Text(), priority=sa.Integer(), begin=sa.Double())
        return probe, probe.c.queue, probe.c.priority
    # The marks come from priority 9 down to 0, so that their place tells it.
    probe = unnested("probe", begin=sa.Double())
    priority = sa.cast(sa.literal_column(str(len(PRIORITIES))) - probe.c.ord, sa.Integer())
    return probe, param("queue", sa.Text()), priority


def _picked(leased: Leased, several: Several, now: Any, conditions: Sequence[Any]) -> sa.Select[Any]:
    table = leased.table
    if "queue" not in table.c:
        one = _waiting(leased, now, [leased.key]).where(table.c.available_at >= param("begin"), *conditions)
        return one.with_for_update(skip_locked=True, key_share=True)
    probe, queue, priority = _probe(several)
    columns = [leased.key, table.c.priority, table.c.available_at, table.c.arrival]
    inner = (
        _waiting(leased, now, columns)
        .where(table.c.queue == queue, table.c.priority == priority)
        .where(table.c.available_at >= probe.c.begin)
        .with_for_update(skip_locked=True, key_share=True)
        .lateral("first")
    )
    chosen = sa.select(inner.c[leased.key.name]).select_from(probe.join(inner, sa.true())).where(*conditions)
    if several == "several":
        chosen = chosen.order_by(inner.c.priority.desc(), inner.c.available_at, inner.c.arrival)
    return chosen.limit(param("limit", sa.Integer()))
