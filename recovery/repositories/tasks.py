"""The tasks: who holds which work, until when, under which fence, and how it ended.

Every way to end is one path, `_end`: the row, its one reply and the journal, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from recovery import states
from recovery.accepting import checked_int, checked_queues, checked_text, encoded_result, is_text_key, safe_text
from recovery.backend import param, rows
from recovery.canonical import canonical_json
from recovery.errors import InvalidEnvelope
from recovery.messages import DEFAULT_QUEUES, Claim, Task, Verdict
from recovery.repositories import claiming, leases
from recovery.repositories.base import Repository
from recovery.repositories.batches import BATCH_MAX, checked
from recovery.repositories.finishing import Asked, Finish, finish_all, finish_and_take, refusal
from recovery.repositories.journal import TASK, JournalRepository, transition
from recovery.repositories.leases import SETTLE_ROWS_MAX, leased_tasks
from recovery.repositories.outbox import OutboxRepository
from recovery.schema import Tables
from recovery.settings import Settings

_STORED: Final = json.JSONDecoder()
"""For stored text, which is canonical: nothing stands before or behind it."""
_TIMES: Final = ("deadline", "available_at", "lease_until", "received_at", "ended_at")


class TaskRepository(Repository):
    """Lets workers claim and end tasks, and settles what is due. The inbox makes them."""

    def __init__(
        self, connection: sa.Connection, settings: Settings | None = None, kept: dict[str, Any] | None = None
    ) -> None:
        super().__init__(connection, settings, kept)
        self.leased = leased_tasks(self.tables)

    @property
    def outbox(self) -> OutboxRepository:
        """The outbox on the same connection."""
        return OutboxRepository(self.connection, self.settings)

    @property
    def journal(self) -> JournalRepository:
        """The journal on the same connection."""
        return JournalRepository(self.connection, self.settings)

    def claim(self, owner: str, queues: Sequence[str] = DEFAULT_QUEUES, *, settle: bool = True) -> Claim | None:
        """Hold the task that comes first, or None where nothing is claimable now.

        The highest priority (9) first, then what became due first, then in order of arrival; from `queues`, a tuple or
        list of 1 to 32 names. What is due is settled before, at most 100 rows, unless `settle` is False.
        """
        held = self.claim_batch(owner, 1, queues, settle=settle)
        return held[0] if held else None

    def claim_batch(
        self, owner: str, limit: int, queues: Sequence[str] = DEFAULT_QUEUES, *, settle: bool = True
    ) -> list[Claim]:
        """Hold up to `limit` (1 to 10,000) due tasks, in order, never more."""
        ask = self.asked(owner, limit, queues)
        rows = claiming.claim(
            self.connection, self.leased, ask, self.settings.clock, self.settle_due if settle else None
        )
        return [claimed(row) for row in rows]

    def asked(self, owner: str, limit: int, queues: Sequence[str]) -> claiming.Ask:
        """What a claim asks for, checked."""
        checked_text(owner, "owner")
        checked_int(limit, "limit", 1, BATCH_MAX)
        return claiming.Ask(owner, limit, self.settings.lease_seconds, checked_queues(queues))

    def has_work(self, owner: str, queues: Sequence[str] = DEFAULT_QUEUES) -> bool:
        """Whether `claim` would find something to take or to settle. Locks nothing."""
        return self.has_work_for(owner, 1, queues)

    def has_work_for(self, owner: str, limit: int, queues: Sequence[str] = DEFAULT_QUEUES) -> bool:
        """Whether `claim_batch` would."""
        ask = self.asked(owner, limit, queues)
        return claiming.anything(self.connection, self.leased, ask.queues, self.settings.clock)

    def has_open(self, queues: Sequence[str] = DEFAULT_QUEUES) -> bool:
        """Whether any task of these queues is pending or running."""
        table = self.tables.tasks
        is_open = table.c.state.in_([leases.literal(state) for state in states.TASK_OPEN])
        mine = sa.exists().where(is_open, table.c.queue.in_(checked_queues(queues)))
        return bool(self.connection.execute(sa.select(mine)).scalar())

    def renew(self, claim: Claim) -> Claim:
        """Prolong a claim's lease from now on, and return the claim with it. Raises Fenced where it is lost."""
        row, now = self._hold(claim)
        until = now + self.settings.lease_seconds
        leases.extend(self.connection, self.leased, row, until)
        return Claim(row.task_id, row.owner, row.fence, row.attempts, claim.payload, until, float(row.deadline))

    def finish(self, claim: Claim, result: Any) -> None:
        """End a task as done, with its result (any JSON value) and its reply.

        The same claim with the same result once more returns quietly, so that a worker whose answer was lost may ask
        again. Raises Fenced where the claim is lost, InvalidEnvelope for a result that breaks the rules.
        """
        finish = self._once("result", lambda: self._finish(claim, result))
        verdict = finish_all(self, [finish])[0]
        if verdict.error is not None:
            raise verdict.error

    def finish_batch(self, items: Iterable[tuple[Claim, Any]]) -> list[Verdict]:
        """Finish many tasks (at most 10,000) in one transaction, from pairs of a claim and its result.

        Each item has its own verdict, in order: a claim that is lost or a result that breaks the rules is refused, and
        the others are stored all the same.
        """
        return finish_all(self, self._once("results", lambda: self._finishes(items)))

    def finish_and_claim(
        self, claim: Claim, result: Any, queues: Sequence[str] = DEFAULT_QUEUES, *, settle: bool = True
    ) -> Claim | None:
        """Finish a task and hold the next one for the same owner, in one transaction; None where nothing is claimable.

        Raises Fenced where the claim is lost, and then claims nothing. After CommitUnknown ask `finish` again: a claim
        whose answer was lost with it comes back when its lease ends.
        """
        finish = self._once("result", lambda: self._finish(claim, result))
        ask = self.asked(claim.owner, 1, queues)
        rows = finish_and_take(self, finish, ask, self.settle_due if settle else None)
        return claimed(rows[0]) if rows else None

    def _finish(self, claim: Claim, result: Any) -> Finish:
        if type(claim) is not Claim:
            raise refusal()
        return Finish(claim, encoded_result(result, self.settings.result_bytes_max))

    def _finishes(self, items: Iterable[tuple[Claim, Any]]) -> list[Asked]:
        return checked(_pairs(items), lambda pair: self._finish(*pair))

    def fail(self, claim: Claim, reason: object, *, retryable: bool = True) -> str:
        """Say that an attempt failed; return the task's state: pending (tried again later), failed or expired."""
        said = safe_text(reason)
        row, now = self._hold(claim)
        if not retryable or row.attempts >= row.max_attempts:
            return self._end([row], now, states.FAILED, said, reason=said, values={"last_error": said})
        again_at = now + self.settings.task_wait_seconds(row.attempts)
        if again_at >= row.deadline:
            late = states.DEADLINE_REACHED
            return self._end([row], now, states.EXPIRED, late, reason=late, values={"last_error": said})
        return self._free([row], now, said, again_at, {"last_error": said})

    def release(self, claim: Claim) -> str:
        """Hand work back at once, without the attempt; return the state: pending, or failed on the last attempt."""
        row, now = self._hold(claim)
        if row.attempts >= row.max_attempts:
            return self._end([row], now, states.FAILED, "released", reason=states.ATTEMPTS_EXHAUSTED)
        return self._free([row], now, "released", now)

    def cancel(self, task_id: str) -> bool:
        """End a task that has not ended. False where it has, where its deadline passed, and for an unknown id."""
        row = leases.lock(self.connection, self.leased, task_id)
        now = self.now()
        if row is None or row.state in states.TASK_ENDED:
            return False
        if row.deadline <= now:
            self._expire([row], now)
            return False
        said = states.CANCELLED_BY_SCHEDULER
        self._end([row], now, states.CANCELLED, said, reason=said)
        return True

    def settle_due(self, now: float, limit: int = SETTLE_ROWS_MAX) -> int:
        """Settle up to `limit` rows whose deadline or lease is over, and return how many."""
        late = leases.due(self.connection, self.leased, "deadline", now, limit)
        self._expire(late, now)
        over = leases.due(self.connection, self.leased, "lease_until", now, limit - len(late))
        self._lease_over(over, now)
        return len(late) + len(over)

    def settle_one(self, task_id: str) -> bool:
        """Settle one task that is due, by itself. False where there was nothing to do."""
        row = leases.lock(self.connection, self.leased, task_id)
        now = self.now()
        if row is None or row.state in states.TASK_ENDED:
            return False
        if row.deadline <= now:
            self._expire([row], now)
            return True
        if row.state == states.RUNNING and row.lease_until <= now:
            self._lease_over([row], now)
            return True
        return False

    def due_ids(self, column: str, after: str = "") -> list[str]:
        """The ids of tasks whose `column` (`deadline` or `lease_until`) is over, in order, at most 100."""
        return leases.due_ids(self.connection, self.leased, column, self.now(), after)

    def task(self, task_id: str) -> Task | None:
        """One task as it is stored, or None."""
        if not is_text_key(task_id):
            return None
        found = rows(self.connection, _stored, (self.tables,), {"p_task_id": task_id})
        return _task(found[0]) if found else None

    def _hold(self, claim: Claim) -> tuple[Any, float]:
        if type(claim) is not Claim:
            raise refusal()
        named = (claim.task_id, claim.owner, claim.fence)
        return leases.hold(self.connection, self.leased, *named, self.settings.clock)

    def is_done_by(self, row: Any, claim: Claim, text: str) -> bool:
        """Whether a locked row was ended by this very claim with this very result."""
        if row.state != states.DONE or (row.fence, row.last_owner) != (claim.fence, claim.owner):
            return False
        if type(claim.fence) is not int:
            return False
        (stored,) = rows(self.connection, _result, (self.tables,), {"p_task_id": row.task_id})
        return bool(stored.result == text)

    def _expire(self, rows: Sequence[Any], now: float) -> None:
        said = states.DEADLINE_REACHED
        self._end(rows, now, states.EXPIRED, said, reason=said)

    def _lease_over(self, rows: Sequence[Any], now: float) -> None:
        said = states.ATTEMPTS_EXHAUSTED
        spent = [row for row in rows if row.attempts >= row.max_attempts]
        self._end(spent, now, states.FAILED, said, reason=said)
        self._free([row for row in rows if row.attempts < row.max_attempts], now, "lease over", now)

    def _free(
        self,
        rows: Sequence[Any],
        now: float,
        why: str,
        available_at: float,
        values: dict[str, Any] | None = None,
    ) -> str:
        if rows:
            columns = leases.freed(available_at) | (values or {})
            leases.write(self.connection, self.leased, rows, states.PENDING, columns)
            self.journal.record([transition(TASK, row, now, states.PENDING, why) for row in rows])
        return states.PENDING

    def _end(
        self,
        rows: Sequence[Any],
        now: float,
        state: str,
        why: str,
        *,
        reason: str,
        values: dict[str, Any] | None = None,
    ) -> str:
        """End rows in any state but done, which has a result and a way of its own."""
        if not rows:
            return state
        ended = {"owner": None, "lease_until": None, "ended_at": now, "reason": reason}
        leases.write(self.connection, self.leased, rows, state, ended | (values or {}))
        said = canonical_json(reason)
        replies = self.outbox.put([(row.task_id, state, said) for row in rows], now)
        self.journal.record([transition(TASK, row, now, state, why) for row in rows] + replies)
        return state


def _pairs(items: Iterable[Any]) -> Iterator[tuple[Claim, Any]]:
    """The items of a batch. What is no pair refuses the whole: nobody can say which claim it was meant for."""
    for pair in items:
        if type(pair) is not tuple or len(pair) != 2:  # noqa: PLR2004 - a pair
            raise InvalidEnvelope("each item is a pair of a claim and its result.", field="items")
        yield pair


def claimed(row: Any) -> Claim:
    """A claim from the row that was taken."""
    payload, _ = _STORED.raw_decode(row.payload)
    lease_until, deadline = float(row.lease_until), float(row.deadline)
    return Claim(row.task_id, row.owner, row.fence, row.attempts, payload, lease_until, deadline)


def _stored(tables: Tables) -> sa.Select[Any]:
    """A task, with what its message said."""
    inbox, tasks = tables.inbox, tables.tasks
    columns = [(tasks if name in tasks.c else inbox).c[name] for name in Task.__slots__]
    joined = sa.select(*columns).join_from(tasks, inbox, tasks.c.task_id == inbox.c.task_id)
    return joined.where(tasks.c.task_id == param("task_id", sa.Text()))


def _result(tables: Tables) -> sa.Select[Any]:
    tasks = tables.tasks
    return sa.select(tasks.c.result).where(tasks.c.task_id == param("task_id", sa.Text()))


def _task(row: Any) -> Task:
    columns = row._asdict()
    for name in _TIMES:
        columns[name] = None if columns[name] is None else float(columns[name])
    return Task(**columns)
