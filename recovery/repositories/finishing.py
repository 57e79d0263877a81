"""Finishing many claims in one transaction, each with a verdict of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa

from recovery import states
from recovery.accepting import is_text_key
from recovery.backend import first_each, param, ready, rows
from recovery.canonical import reply_id, reply_text
from recovery.errors import InvalidEnvelope, RecoveryError, StatementFailed
from recovery.messages import Claim, Verdict
from recovery.repositories import claiming, leases
from recovery.repositories.adding import add, adding
from recovery.repositories.batches import verdicts
from recovery.repositories.holding import finish_and_claim_statement, finish_statement
from recovery.repositories.journal import COLUMNS, TASK, transition
from recovery.repositories.outbox import REPLY_COLUMNS

if TYPE_CHECKING:
    from recovery.repositories.tasks import TaskRepository


@dataclass(frozen=True, slots=True)
class Finish:
    """A claim and its encoded result."""

    claim: Claim
    text: str


Asked: TypeAlias = Finish | RecoveryError
Numbered: TypeAlias = tuple[int, Finish]


def finish_all(room: TaskRepository, asked: Sequence[Asked]) -> list[Verdict]:
    """A verdict for each item, in order."""
    return verdicts(room, asked, lambda item: item.claim, partial(_composed, room), partial(_in_steps, room))


def _in_steps(room: TaskRepository, items: Sequence[Numbered]) -> dict[int, Verdict]:
    """End what its claim still owns; whatever that does not touch is looked at, and told why."""
    if room.backend.composes:  # What stands here was made up, and is never sent.
        return _compared(room, items)
    ended = _ended_at_once(room, items)
    said = {index: Verdict(item.claim.task_id, states.DONE) for index, item in items if index in ended}
    refused = [one for one in items if one[0] not in ended]
    return said | _compared(room, refused) if refused else said


def _ended_at_once(room: TaskRepository, items: Sequence[Numbered]) -> set[int]:
    """End tasks by one UPDATE each, which proves the claim by itself: nobody else can write in between."""
    ready(room.connection, ("finish", room.tables), lambda: _statements(room))
    now = room.now()
    known = [(index, item) for index, item in items if leases.is_sendable(item.claim)]
    given = [
        {
            "key": item.claim.task_id,
            "owner": item.claim.owner,
            "fence": item.claim.fence,
            "result": item.text,
            "now": now,
        }
        for _, item in known
    ]
    found = first_each(room.connection, _end_owned, (room.leased,), given)
    ended = [(row, index, item) for row, (index, item) in zip(found, known, strict=True) if row is not None]
    _reply(room, [(row, item) for row, _, item in ended], now)
    return {index for _, index, _ in ended}


def _statements(room: TaskRepository) -> list[Any]:
    tables, at = room.tables, room.backend
    columns = (adding(tables.outbox, REPLY_COLUMNS, at), adding(tables.journal, COLUMNS, at))
    return [(_end_owned, (room.leased,)), *columns]


def _end_owned(leased: leases.Leased) -> sa.Update:
    # No state in the WHERE, which would let the partial index of the lease be taken: who has an owner is running.
    table, now, owner = leased.table, param("now"), param("owner", sa.Text())
    mine = [leased.key == param("key", sa.Text()), table.c.fence == param("fence", sa.BigInteger())]
    mine += [table.c.owner == owner, table.c.lease_until > now, table.c.deadline > now]
    ended = {"owner": None, "lease_until": None, "reason": None, "ended_at": now, "result": param("result", sa.Text())}
    was = [leased.key, owner.label("owner"), table.c.fence, table.c.attempts]
    return sa.update(table).where(*mine).values(state=leases.literal(states.DONE), **ended).returning(*was)


def _compared(room: TaskRepository, items: Sequence[Numbered]) -> dict[int, Verdict]:
    said: dict[int, Verdict] = {}
    found = leases.locked(room.connection, room.leased, [item.claim.task_id for _, item in items])
    now = room.now()
    for index, item in items:
        claim = item.claim
        row = found.get(claim.task_id) if is_text_key(claim.task_id) else None
        error = leases.broken(row, room.leased, claim.task_id, claim.owner, claim.fence, now)
        if error is None:
            raise StatementFailed(leases.UNCHANGED)
        if row is not None and room.is_done_by(row, claim, item.text):
            error = None
        said[index] = Verdict(claim.task_id, None if error else states.DONE, error)
    return said


def _reply(room: TaskRepository, held: Sequence[tuple[Any, Finish]], now: float) -> None:
    """Put the reply of each task that ended, and note both moves."""
    if held:
        put = room.outbox.put([(row.task_id, states.DONE, item.text) for row, item in held], now)
        moves = [transition(TASK, row, now, states.DONE, "finished", from_state=states.RUNNING) for row, _ in held]
        add(room.connection, room.tables.journal, [move for pair in zip(moves, put, strict=True) for move in pair])


def finish_values(room: TaskRepository, items: Sequence[Finish]) -> dict[str, Any]:
    """The parameters of a composed finish."""
    values: dict[str, Any] = {
        "p_key": [item.claim.task_id for item in items],
        "p_owner": [item.claim.owner for item in items],
        "p_fence": [item.claim.fence for item in items],
        "p_result": [item.text for item in items],
        "p_reply_id": [reply_id(item.claim.task_id) for item in items],
        "p_reply": [reply_text(item.claim.task_id, states.DONE, item.text) for item in items],
        "p_delivery_attempts": room.settings.delivery_attempts,
    }
    return values | room.hand_time()


def _composed(room: TaskRepository, items: Sequence[Numbered]) -> dict[int, Verdict]:
    arguments = (room.tables, room.leased, room.hand, room.backend)
    found = rows(room.connection, finish_statement, arguments, finish_values(room, [item for _, item in items]))
    by_order = {row.ord: row for row in found}
    return {index: verdict(room, item, by_order.get(order)) for order, (index, item) in enumerate(items, 1)}


def verdict(room: TaskRepository, item: Finish, row: Any) -> Verdict:
    """What a row of the answer says of one claim."""
    claim = item.claim
    if row is not None and (row.moved or (row.state == states.DONE and row.again)):
        return Verdict(claim.task_id, states.DONE)
    error = leases.broken(
        row, room.leased, claim.task_id, claim.owner, claim.fence, 0.0 if row is None else row.read_at
    )
    if error is None:
        raise StatementFailed(leases.UNCHANGED)
    return Verdict(claim.task_id, None, error)


def refusal() -> InvalidEnvelope:
    """For something that is no claim."""
    return InvalidEnvelope("a Claim is wanted, as claim returned it.", field="claim")


def finish_and_take(
    room: TaskRepository, item: Finish, ask: claiming.Ask, settle: Callable[[float], object] | None
) -> list[Any]:
    """Finish one claim, raising what stands against it, and take what comes next."""
    composed = room.backend.composes and leases.is_sendable(item.claim)
    first = _finish_and_take_first(room, item, ask, look=settle is not None) if composed else None
    if not composed:
        claiming.get_ready(room.connection, room.leased, ask, looks=settle is not None)
    said = verdict(room, item, first) if composed else finish_all(room, [item])[0]
    if said.error is not None:
        raise said.error
    if first is None or not first.moved:  # What was finished before is followed by nothing in the same statement.
        return claiming.claim(room.connection, room.leased, ask, room.settings.clock, settle)
    taken = [] if first.next_fence is None else [_taken(first)]
    sent = claiming.Sent(taken, first.read_at, bool(first.due))
    return claiming.follow_up(room.connection, room.leased, ask, room.settings.clock, settle, sent)


def _finish_and_take_first(room: TaskRepository, item: Finish, ask: claiming.Ask, *, look: bool) -> Any:
    marks = claiming.marks_of(room.connection, room.leased)
    values = finish_values(room, [item]) | claiming.claim_values(ask, marks, look=look)
    arguments = (room.tables, room.leased, ask.several, room.hand, room.backend)
    found = rows(room.connection, finish_and_claim_statement, arguments, values)
    return found[0] if found else None


def _taken(row: Any) -> Any:
    """The part of an answer that is the task taken."""
    return SimpleNamespace(**{n.removeprefix("next_"): getattr(row, n) for n in row._fields if n.startswith("next_")})
