"""The outbox: each task's one reply, from the moment the task ends until a receiver has stored a receipt.

Delivering never changes the task. Every attempt sends the stored bytes under the same id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from recovery import states
from recovery.accepting import checked_int, checked_text, is_text_key, safe_text
from recovery.canonical import reply_id, reply_text
from recovery.errors import InvalidEnvelope
from recovery.messages import Delivery, Reply
from recovery.repositories import leases
from recovery.repositories.base import Repository
from recovery.repositories.journal import REPLY, JournalRepository, transition
from recovery.repositories.leases import SETTLE_ROWS_MAX, leased_replies
from recovery.repositories.settling import settling
from recovery.settings import Settings

REPLIES_MAX = 100_000


class OutboxRepository(Repository):
    """Puts replies, and lets dispatchers claim, renew and settle them."""

    def __init__(
        self, connection: sa.Connection, settings: Settings | None = None, kept: dict[str, Any] | None = None
    ) -> None:
        super().__init__(connection, settings, kept)
        self._leased = leased_replies(self.tables)
        self._journal = JournalRepository(connection, self.settings)

    def put(self, task_ids: Sequence[str], status: str, result_text: str, now: float) -> list[dict[str, Any]]:
        """Store one reply for each task that ended as `status`; return the journal rows, for the caller to record."""
        floor = sa.select(self.tables.fence_floor.c.floor).scalar_subquery()
        counted = self.backend.arrival(self.tables.outbox)
        rows = [self._new(task_id, status, result_text, now) for task_id in task_ids]
        self.connection.execute(sa.insert(self.tables.outbox).values(fence=floor, **counted), rows)
        return [_first(row) for row in rows]

    def _new(self, task_id: str, status: str, result_text: str, now: float) -> dict[str, Any]:
        return {
            "reply_id": reply_id(task_id),
            "task_id": task_id,
            "status": status,
            "payload": reply_text(task_id, status, result_text),
            "state": states.PENDING,
            "max_attempts": self.settings.delivery_attempts,
            "attempts": 0,
            "available_at": now,
            "created_at": now,
        }

    def claim_reply(self, owner: str, *, settle: bool = True) -> Delivery | None:
        """Hold the oldest reply that is due, or None. Deliveries whose lease ended are settled first."""
        checked_text(owner, "owner")
        now, something_due = leases.look(self.connection, self._leased, self.settings.clock)
        if settle and something_due:
            with settling(self.backend):
                self.settle_due(now)
        until = now + float(self.settings.delivery_lease_seconds or 0)
        rows = leases.take(self.connection, self._leased, owner, now, until, 1)
        self._journal.record(
            [transition(REPLY, row, now, states.SENDING, "claimed", from_state=states.PENDING) for row in rows]
        )
        return _delivery(rows[0]) if rows else None

    def renew_reply(self, delivery: Delivery) -> Delivery:
        """Prolong the lease of a delivery from now on. Raises Fenced where it no longer holds."""
        row, now = self._hold(delivery)
        until = now + float(self.settings.delivery_lease_seconds or 0)
        table = self.tables.outbox
        mine = sa.and_(table.c.reply_id == row.reply_id, table.c.fence == row.fence)
        self.connection.execute(sa.update(table).where(mine).values(lease_until=until))
        return Delivery(row.reply_id, row.owner, row.fence, row.attempts, row.payload, until)

    def settle(self, delivery: Delivery, *, delivered: bool, error: object = None, permanent: bool = False) -> str:
        """Store what became of a delivery and return the reply's state: sent, pending (to be tried again) or dead."""
        row, now = self._hold(delivery)
        if delivered:
            return self._move([row], now, states.SENT, "receipt stored", {"last_error": None})
        said = safe_text("no reason given" if error is None else error)
        if permanent or row.attempts >= row.max_attempts:
            return self._move([row], now, states.DEAD, said, {"last_error": said})
        wait = self.settings.delivery_wait_seconds(row.attempts)
        return self._move([row], now, states.PENDING, said, {"last_error": said}, now + wait)

    def _hold(self, delivery: Delivery) -> tuple[sa.Row[Any], float]:
        if type(delivery) is not Delivery:
            raise InvalidEnvelope("a Delivery is wanted, as claim_reply returned it.", field="delivery")
        named = (delivery.reply_id, delivery.owner, delivery.fence)
        return leases.hold(self.connection, self._leased, *named, self.settings.clock)

    def _move(
        self,
        rows: Sequence[sa.Row[Any]],
        now: float,
        target: str,
        why: str,
        values: dict[str, Any],
        available_at: float | None = None,
    ) -> str:
        if not rows:
            return target
        settled = {"settled_at": now, "owner": None, "lease_until": None}
        free = leases.freed(now if available_at is None else available_at)
        columns = free if target == states.PENDING else settled
        leases.write(self.connection, self._leased, rows, target, columns | values)
        self._journal.record([transition(REPLY, row, now, target, why) for row in rows])
        return target

    def settle_due(self, now: float, limit: int = SETTLE_ROWS_MAX) -> int:
        """Free deliveries whose lease ended, or let them die where the budget is spent; return how many."""
        rows = leases.due(self.connection, self._leased, "lease_until", now, limit)
        spent = [row for row in rows if row.attempts >= row.max_attempts]
        again = [row for row in rows if row.attempts < row.max_attempts]
        said = states.DELIVERY_LEASE_EXPIRED
        self._move(spent, now, states.DEAD, said, {"last_error": said})
        self._move(again, now, states.PENDING, said, {"last_error": said})
        return len(rows)

    def settle_one(self, identity: str) -> bool:
        """Settle one delivery whose lease ended, by itself. False where there was nothing to do."""
        row = leases.lock(self.connection, self._leased, identity)
        now = self._now()
        if row is None or row.state != states.SENDING or row.lease_until > now:
            return False
        said = states.DELIVERY_LEASE_EXPIRED
        target = states.PENDING if row.attempts < row.max_attempts else states.DEAD
        self._move([row], now, target, said, {"last_error": said})
        return True

    def due_ids(self, after: str = "") -> list[str]:
        """The ids of deliveries whose lease is over, in order, at most 100."""
        return leases.due_ids(self.connection, self._leased, "lease_until", self._now(), after)

    def replies(self, task_id: str | None = None, *, limit: int = 10_000) -> list[Reply]:
        """The stored replies in the order in which their tasks ended, at most `limit`; or those of one task."""
        checked_int(limit, "limit", 1, REPLIES_MAX)
        table = self.tables.outbox
        statement = sa.select(*[table.c[name] for name in Reply.__slots__]).order_by(table.c.arrival).limit(limit)
        if task_id is not None:
            if not is_text_key(task_id):
                return []
            statement = statement.where(table.c.task_id == task_id)
        return [_reply(row) for row in self.connection.execute(statement)]


def _delivery(row: sa.Row[Any]) -> Delivery:
    return Delivery(row.reply_id, row.owner, row.fence, row.attempts, row.payload, float(row.lease_until))


def _reply(row: sa.Row[Any]) -> Reply:
    columns = dict(row._mapping)
    for name in ("available_at", "lease_until", "created_at", "settled_at"):
        columns[name] = None if columns[name] is None else float(columns[name])
    return Reply(**columns)


def _first(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": row["created_at"],
        "task_id": row["task_id"],
        "subject": REPLY,
        "from_state": states.NEW,
        "to_state": states.PENDING,
        "owner": None,
        "fence": 0,
        "attempt": 0,
        "why": f"task {row['status']}",
    }
