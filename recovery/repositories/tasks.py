"""The tasks: who holds which work, until when, under which fence, and how it ended.

Every way to end is one path, `_end`: the row, its one reply and the journal, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from recovery import states
from recovery.accepting import checked_int, checked_text, encoded_result, is_text_key, safe_text
from recovery.admission import Admitted
from recovery.canonical import canonical_json
from recovery.errors import Fenced, InvalidEnvelope
from recovery.messages import Claim, Task
from recovery.repositories import leases
from recovery.repositories.base import Repository
from recovery.repositories.journal import TASK, JournalRepository, transition
from recovery.repositories.leases import SETTLE_ROWS_MAX, leased_tasks
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.settling import settling
from recovery.settings import Settings

CLAIM_ROWS_MAX = 10_000
_TIMES = ("deadline", "available_at", "lease_until", "received_at", "ended_at")


class TaskRepository(Repository):
    """Creates tasks, lets workers claim and end them, and settles what is due."""

    def __init__(
        self, connection: sa.Connection, settings: Settings | None = None, kept: dict[str, Any] | None = None
    ) -> None:
        super().__init__(connection, settings, kept)
        self._leased = leased_tasks(self.tables)
        self._outbox = OutboxRepository(connection, self.settings)
        self._journal = JournalRepository(connection, self.settings)

    def create(self, admitted: Sequence[Admitted], now: float) -> None:
        """Store the tasks of envelopes that are in the inbox already, in order of arrival.

        One whose deadline passed, or whose hops are spent, ends here, with its reply.
        """
        if not admitted:
            return
        # The floor is read after the inbox row was inserted, in a later statement: a purge that removed an older
        # task of the same id has raised it by then, and the fence cannot repeat.
        floor = sa.select(self.tables.fence_floor.c.floor).scalar_subquery()
        counted = self.backend.arrival(self.tables.tasks)
        rows = [_new(one, now, self.settings.max_hops) for one in admitted]
        self.connection.execute(sa.insert(self.tables.tasks).values(fence=floor, **counted), rows)
        moves = [_first(row) for row in rows]
        for row in rows:
            if row["reason"] is not None:
                moves += self._outbox.put([row["task_id"]], row["state"], canonical_json(row["reason"]), now)
        self._journal.record(moves)

    def claim(self, owner: str, *, settle: bool = True) -> Claim | None:
        """Hold the task that is due first, or None where nothing is claimable now.

        What is due is settled before, at most 100 rows, unless `settle` is False.
        """
        held = self.claim_batch(owner, 1, settle=settle)
        return held[0] if held else None

    def claim_batch(self, owner: str, limit: int, *, settle: bool = True) -> list[Claim]:
        """Hold up to `limit` (1 to 10,000) due tasks, in order, never more."""
        checked_text(owner, "owner")
        checked_int(limit, "limit", 1, CLAIM_ROWS_MAX)
        now, something_due = leases.look(self.connection, self._leased, self.settings.clock)
        if settle and something_due:
            with settling(self.backend):
                self.settle_due(now)
        rows = leases.take(self.connection, self._leased, owner, now, now + self.settings.lease_seconds, limit)
        self._journal.record(
            [transition(TASK, row, now, states.RUNNING, "claimed", from_state=states.PENDING) for row in rows]
        )
        return [_claim(row) for row in rows]

    def renew(self, claim: Claim) -> Claim:
        """Prolong a claim's lease from now on, and return the claim with it. Raises Fenced where it is lost."""
        row, now = self._hold(claim)
        until = now + self.settings.lease_seconds
        table = self.tables.tasks
        mine = sa.and_(table.c.task_id == row.task_id, table.c.fence == row.fence)
        self.connection.execute(sa.update(table).where(mine).values(lease_until=until))
        return Claim(row.task_id, row.owner, row.fence, row.attempts, claim.payload, until, float(row.deadline))

    def finish(self, claim: Claim, result: Any) -> None:
        """End a task as done, with its result (any JSON value) and its reply.

        The same claim with the same result once more returns quietly, so that a worker whose answer was lost may ask
        again. Raises Fenced where the claim is lost, InvalidEnvelope for a result that breaks the rules.
        """
        text = self._once("result", lambda: encoded_result(result, self.settings.result_bytes_max))
        try:
            row, now = self._hold(claim)
        except Fenced:
            if self._is_done_by(claim, text):
                return
            raise
        self._end([row], now, states.DONE, "finished", result=text)

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
        row = leases.lock(self.connection, self._leased, task_id)
        now = self._now()
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
        late = leases.due(self.connection, self._leased, "deadline", now, limit)
        self._expire(late, now)
        over = leases.due(self.connection, self._leased, "lease_until", now, limit - len(late))
        self._lease_over(over, now)
        return len(late) + len(over)

    def settle_one(self, task_id: str) -> bool:
        """Settle one task that is due, by itself. False where there was nothing to do."""
        row = leases.lock(self.connection, self._leased, task_id)
        now = self._now()
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
        return leases.due_ids(self.connection, self._leased, column, self._now(), after)

    def task(self, task_id: str) -> Task | None:
        """One task as it is stored, or None."""
        if not is_text_key(task_id):
            return None
        inbox, tasks = self.tables.inbox, self.tables.tasks
        columns = [(tasks if name in tasks.c else inbox).c[name] for name in Task.__slots__]
        joined = sa.select(*columns).join_from(tasks, inbox, tasks.c.task_id == inbox.c.task_id)
        row = self.connection.execute(joined.where(tasks.c.task_id == task_id)).one_or_none()
        return None if row is None else _task(row)

    def _hold(self, claim: Claim) -> tuple[sa.Row[Any], float]:
        if type(claim) is not Claim:
            raise InvalidEnvelope("a Claim is wanted, as claim returned it.", field="claim")
        named = (claim.task_id, claim.owner, claim.fence)
        return leases.hold(self.connection, self._leased, *named, self.settings.clock)

    def _is_done_by(self, claim: Claim, text: str) -> bool:
        row = leases.lock(self.connection, self._leased, claim.task_id)
        if row is None or row.state != states.DONE:
            return False
        return (row.fence, row.last_owner, row.result) == (claim.fence, claim.owner, text)

    def _expire(self, rows: Sequence[sa.Row[Any]], now: float) -> None:
        said = states.DEADLINE_REACHED
        self._end(rows, now, states.EXPIRED, said, reason=said)

    def _lease_over(self, rows: Sequence[sa.Row[Any]], now: float) -> None:
        said = states.ATTEMPTS_EXHAUSTED
        spent = [row for row in rows if row.attempts >= row.max_attempts]
        self._end(spent, now, states.FAILED, said, reason=said)
        self._free([row for row in rows if row.attempts < row.max_attempts], now, "lease over", now)

    def _free(
        self,
        rows: Sequence[sa.Row[Any]],
        now: float,
        why: str,
        available_at: float,
        values: dict[str, Any] | None = None,
    ) -> str:
        if rows:
            columns = leases.freed(available_at) | (values or {})
            leases.write(self.connection, self._leased, rows, states.PENDING, columns)
            self._journal.record([transition(TASK, row, now, states.PENDING, why) for row in rows])
        return states.PENDING

    def _end(
        self,
        rows: Sequence[sa.Row[Any]],
        now: float,
        state: str,
        why: str,
        *,
        result: str | None = None,
        reason: str | None = None,
        values: dict[str, Any] | None = None,
    ) -> str:
        if not rows:
            return state
        ended = {"owner": None, "lease_until": None, "ended_at": now, "result": result, "reason": reason}
        leases.write(self.connection, self._leased, rows, state, ended | (values or {}))
        said = canonical_json(reason) if result is None else result
        replies = self._outbox.put([row.task_id for row in rows], state, said, now)
        self._journal.record([transition(TASK, row, now, state, why) for row in rows] + replies)
        return state


def _new(admitted: Admitted, now: float, max_hops: int) -> dict[str, Any]:
    reason = None
    state = states.PENDING
    if admitted.deadline <= now:
        state, reason = states.EXPIRED, states.DEADLINE_REACHED
    elif admitted.hops >= max_hops:
        state, reason = states.HOP_LIMIT, states.HOPS_REACHED
    return {
        "task_id": admitted.task_id,
        "state": state,
        "payload": admitted.payload,
        "deadline": admitted.deadline,
        "hops": admitted.hops,
        "max_attempts": admitted.max_attempts,
        "attempts": 0,
        "available_at": now,
        "received_at": now,
        "reason": reason,
        "ended_at": None if reason is None else now,
    }


def _first(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": row["received_at"],
        "task_id": row["task_id"],
        "subject": TASK,
        "from_state": states.NEW,
        "to_state": row["state"],
        "owner": None,
        "fence": 0,
        "attempt": 0,
        "why": row["reason"] or "received",
    }


def _claim(row: sa.Row[Any]) -> Claim:
    payload = json.loads(row.payload)
    lease_until, deadline = float(row.lease_until), float(row.deadline)
    return Claim(row.task_id, row.owner, row.fence, row.attempts, payload, lease_until, deadline)


def _task(row: sa.Row[Any]) -> Task:
    columns = dict(row._mapping)
    for name in _TIMES:
        columns[name] = None if columns[name] is None else float(columns[name])
    return Task(**columns)
