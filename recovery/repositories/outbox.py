"""The outbox: each task's one reply, from the moment the task ends until a receiver has stored a receipt.

Delivering never changes the task. Every attempt sends the stored bytes under the same id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from recovery import states
from recovery.accepting import checked_int, checked_text, is_text_key
from recovery.backend import param, rows
from recovery.canonical import reply_id, reply_text
from recovery.messages import Delivery, Reply, Settlement, Verdict
from recovery.repositories import claiming, leases
from recovery.repositories.adding import add
from recovery.repositories.base import Repository
from recovery.repositories.batches import BATCH_MAX
from recovery.repositories.journal import REPLY, JournalRepository, first, transition
from recovery.repositories.leases import SETTLE_ROWS_MAX, leased_replies
from recovery.repositories.sending import asked, refusal, settle_all
from recovery.schema import Tables
from recovery.settings import Settings

REPLIES_MAX = 100_000
REPLY_COLUMNS: Final = (
    "reply_id", "task_id", "status", "payload", "state", "max_attempts", "attempts", "fence", "available_at",
    "created_at",
)  # fmt: skip
"""The columns of a new reply, in the order in which they are written."""


class OutboxRepository(Repository):
    """Puts replies, and lets dispatchers claim, renew and settle them."""

    def __init__(
        self, connection: sa.Connection, settings: Settings | None = None, kept: dict[str, Any] | None = None
    ) -> None:
        super().__init__(connection, settings, kept)
        self.leased = leased_replies(self.tables)

    @property
    def journal(self) -> JournalRepository:
        """The journal on the same connection."""
        return JournalRepository(self.connection, self.settings)

    def put(self, ended: Sequence[tuple[str, str, str]], now: float) -> list[dict[str, Any]]:
        """Store one reply for each task that ended: its id, its status, and its result or reason as canonical JSON.

        Returns the journal rows, for the caller to record.
        """
        rows = [self._new(*one, now) for one in ended]
        add(self.connection, self.tables.outbox, rows)
        return [first(REPLY, row["task_id"], now, states.PENDING, f"task {row['status']}") for row in rows]

    def _new(self, task_id: str, status: str, result_text: str, now: float) -> dict[str, Any]:
        return {
            "reply_id": reply_id(task_id),
            "task_id": task_id,
            "status": status,
            "payload": reply_text(task_id, status, result_text),
            "state": states.PENDING,
            "max_attempts": self.settings.delivery_attempts,
            "attempts": 0,
            "fence": 0,
            "available_at": now,
            "created_at": now,
        }

    def claim_reply(self, owner: str, *, settle: bool = True) -> Delivery | None:
        """Hold the oldest reply that is due, or None. Deliveries whose lease ended are settled first."""
        held = self.claim_reply_batch(owner, 1, settle=settle)
        return held[0] if held else None

    def claim_reply_batch(self, owner: str, limit: int, *, settle: bool = True) -> list[Delivery]:
        """Hold up to `limit` (1 to 10,000) due replies, oldest first, never more."""
        ask = self._asked(owner, limit)
        due = self.settle_due if settle else None
        return [_delivery(row) for row in claiming.claim(self.connection, self.leased, ask, self.settings.clock, due)]

    def has_work(self, owner: str) -> bool:
        """Whether `claim_reply` would find something to take or to settle. Locks nothing."""
        return self.has_work_for(owner, 1)

    def has_work_for(self, owner: str, limit: int) -> bool:
        """Whether `claim_reply_batch` would."""
        self._asked(owner, limit)
        return claiming.anything(self.connection, self.leased, (), self.settings.clock)

    def _asked(self, owner: str, limit: int) -> claiming.Ask:
        checked_text(owner, "owner")
        checked_int(limit, "limit", 1, BATCH_MAX)
        return claiming.Ask(owner, limit, float(self.settings.delivery_lease_seconds or 0))

    def renew_reply(self, delivery: Delivery) -> Delivery:
        """Prolong the lease of a delivery from now on. Raises Fenced where it no longer holds."""
        row, now = self._hold(delivery)
        until = now + float(self.settings.delivery_lease_seconds or 0)
        leases.extend(self.connection, self.leased, row, until)
        return Delivery(row.reply_id, row.owner, row.fence, row.attempts, delivery.payload, until)

    def settle(self, delivery: Delivery, *, delivered: bool, error: object = None, permanent: bool = False) -> str:
        """Store what became of a delivery and return the reply's state: sent, pending (to be tried again) or dead."""
        verdict = self.settle_batch([Settlement(delivery, delivered, error, permanent)])[0]
        if verdict.error is not None:
            raise verdict.error
        assert verdict.state is not None
        return verdict.state

    def settle_batch(self, items: Iterable[Settlement]) -> list[Verdict]:
        """Store what became of many deliveries (at most 10,000) in one transaction, each with a verdict of its own."""
        return settle_all(self, self._once("settled", lambda: asked(items, self.settings)))

    def _hold(self, delivery: Delivery) -> tuple[Any, float]:
        if type(delivery) is not Delivery:
            raise refusal()
        named = (delivery.reply_id, delivery.owner, delivery.fence)
        return leases.hold(self.connection, self.leased, *named, self.settings.clock)

    def move(
        self,
        rows: Sequence[Any],
        now: float,
        target: str,
        why: str,
        values: dict[str, Any],
    ) -> str:
        """Move locked rows, and note it."""
        if not rows:
            return target
        settled = {"settled_at": now, "owner": None, "lease_until": None}
        columns = leases.freed(now) if target == states.PENDING else settled
        leases.write(self.connection, self.leased, rows, target, columns | values)
        self.journal.record([transition(REPLY, row, now, target, why) for row in rows])
        return target

    def settle_due(self, now: float, limit: int = SETTLE_ROWS_MAX) -> int:
        """Free deliveries whose lease ended, or let them die where the budget is spent; return how many."""
        rows = leases.due(self.connection, self.leased, "lease_until", now, limit)
        spent = [row for row in rows if row.attempts >= row.max_attempts]
        again = [row for row in rows if row.attempts < row.max_attempts]
        said = states.DELIVERY_LEASE_EXPIRED
        self.move(spent, now, states.DEAD, said, {"last_error": said})
        self.move(again, now, states.PENDING, said, {"last_error": said})
        return len(rows)

    def settle_one(self, identity: str) -> bool:
        """Settle one delivery whose lease ended, by itself. False where there was nothing to do."""
        row = leases.lock(self.connection, self.leased, identity)
        now = self.now()
        if row is None or row.state != states.SENDING or row.lease_until > now:
            return False
        said = states.DELIVERY_LEASE_EXPIRED
        target = states.PENDING if row.attempts < row.max_attempts else states.DEAD
        self.move([row], now, target, said, {"last_error": said})
        return True

    def due_ids(self, after: str = "") -> list[str]:
        """The ids of deliveries whose lease is over, in order, at most 100."""
        return leases.due_ids(self.connection, self.leased, "lease_until", self.now(), after)

    def replies(self, task_id: str | None = None, *, limit: int = 10_000) -> list[Reply]:
        """The stored replies in the order in which their tasks ended, at most `limit`; or those of one task."""
        checked_int(limit, "limit", 1, REPLIES_MAX)
        values: dict[str, Any] = {"p_limit": limit}
        if task_id is not None:
            if not is_text_key(task_id):
                return []
            values["p_task_id"] = task_id
        found = rows(self.connection, _stored, (self.tables, task_id is not None), values)
        return [_reply(row) for row in found]


def _delivery(row: Any) -> Delivery:
    return Delivery(row.reply_id, row.owner, row.fence, row.attempts, row.payload, float(row.lease_until))


def _stored(tables: Tables, of_one: bool) -> sa.Select[Any]:  # noqa: FBT001 - an argument that names a statement
    """The replies in their order, or those of one task."""
    table = tables.outbox
    statement = sa.select(*[table.c[name] for name in Reply.__slots__])
    if of_one:
        statement = statement.where(table.c.task_id == param("task_id", sa.Text()))
    return statement.order_by(table.c.arrival).limit(param("limit", sa.Integer()))


def _reply(row: Any) -> Reply:
    columns = row._asdict()
    for name in ("available_at", "lease_until", "created_at", "settled_at"):
        columns[name] = None if columns[name] is None else float(columns[name])
    return Reply(**columns)
