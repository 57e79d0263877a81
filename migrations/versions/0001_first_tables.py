"""The first tables: inbox, tasks, outbox, receipts, effects, journal, and the floor of all fences.

Frozen: a step that was released never changes, and imports nothing of recovery.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAMING = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
}
ENDED = "state IN ('done', 'failed', 'cancelled', 'expired', 'hop_limit')"
OPEN = "state IN ('pending', 'running')"

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Counter = sa.BigInteger()
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Seconds: sa.Double[float] = sa.Double()


def upgrade() -> None:
    """Make every table and index, and the one row of the fence floor."""
    prefix = op.get_context().opts["table_prefix"]
    metadata = sa.MetaData(naming_convention=NAMING)
    for maker in (_inbox, _tasks, _outbox, _receipts, _effects, _journal, _fence_floor):
        table = maker(metadata, prefix)
        op.execute(sa.schema.CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(sa.schema.CreateIndex(index))
    op.execute(f"INSERT INTO {prefix}fence_floor (id, floor) VALUES (1, 0)")


def downgrade() -> None:
    """There is no way down: restore a backup instead."""
    raise NotImplementedError("recovery's ladder only goes up; restore a backup instead.")


def _leased(states: str, held: str) -> tuple[sa.CheckConstraint, ...]:
    whole = f"(state = '{held}') = (owner IS NOT NULL) AND (owner IS NULL) = (lease_until IS NULL)"
    return (
        sa.CheckConstraint(f"state IN ({states})", name="state"),
        sa.CheckConstraint(whole, name="lease_whole"),
        sa.CheckConstraint("attempts >= 0 AND attempts <= max_attempts", name="attempts"),
        sa.CheckConstraint("state <> 'pending' OR attempts < max_attempts", name="pending_has_attempts"),
        sa.CheckConstraint("fence >= 0", name="fence"),
    )


def _inbox(metadata: sa.MetaData, prefix: str) -> sa.Table:
    return sa.Table(
        f"{prefix}inbox",
        metadata,
        # The one unique constraint. The id is a hash of (principal, message_id), and a second constraint beside the
        # one that ON CONFLICT names makes racing inserts fail on PostgreSQL.
        sa.Column("task_id", Key, primary_key=True),
        sa.Column("principal", Key, nullable=False),
        sa.Column("message_id", Key, nullable=False),
        sa.Column("kind", Key, nullable=False),
        sa.Column("fingerprint", Key, nullable=False),
        sa.Column("scope_name", Key),
        sa.Column("scope_version", Counter),
        sa.CheckConstraint("kind = 'task'", name="kind"),
    )


def _tasks(metadata: sa.MetaData, prefix: str) -> sa.Table:
    table = sa.Table(
        f"{prefix}tasks",
        metadata,
        sa.Column("task_id", Key, sa.ForeignKey(f"{prefix}inbox.task_id"), primary_key=True),
        sa.Column("arrival", Counter, sa.Identity(), nullable=False),
        sa.Column("queue", Key),
        sa.Column("priority", sa.Integer),
        sa.Column("state", Key, nullable=False),
        sa.Column("payload", sa.Text),
        sa.Column("deadline", Seconds, nullable=False),
        sa.Column("hops", Counter, nullable=False),
        sa.Column("max_attempts", Counter, nullable=False),
        sa.Column("attempts", Counter, nullable=False),
        sa.Column("fence", Counter, nullable=False),
        sa.Column("available_at", Seconds, nullable=False),
        sa.Column("owner", Key),
        sa.Column("lease_until", Seconds),
        sa.Column("last_owner", Key),
        sa.Column("last_error", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("received_at", Seconds, nullable=False),
        sa.Column("ended_at", Seconds),
        *_leased("'pending', 'running', 'done', 'failed', 'cancelled', 'expired', 'hop_limit'", "running"),
        sa.CheckConstraint("max_attempts >= 1 AND max_attempts <= 10", name="max_attempts"),
        sa.CheckConstraint("hops >= 0", name="hops"),
        sa.CheckConstraint("priority IS NULL OR (priority >= 0 AND priority <= 9)", name="priority"),
        sa.CheckConstraint(f"({ENDED}) = (ended_at IS NOT NULL)", name="ended_whole"),
        sa.CheckConstraint("(state = 'done') OR result IS NULL", name="result_when_done"),
        sa.CheckConstraint(f"(reason IS NOT NULL) = ({ENDED} AND state <> 'done')", name="reason_when_not_done"),
        sa.CheckConstraint(f"payload IS NOT NULL OR {ENDED}", name="payload_while_open"),
    )
    sa.Index(f"ix_{prefix}tasks_claimable", table.c.available_at, table.c.arrival, **_partial("state = 'pending'"))
    sa.Index(f"ix_{prefix}tasks_deadline", table.c.deadline, table.c.task_id, **_partial(OPEN))
    sa.Index(f"ix_{prefix}tasks_lease", table.c.lease_until, table.c.task_id, **_partial("state = 'running'"))
    sa.Index(f"ix_{prefix}tasks_arrival", table.c.arrival)
    return table


def _outbox(metadata: sa.MetaData, prefix: str) -> sa.Table:
    table = sa.Table(
        f"{prefix}outbox",
        metadata,
        sa.Column("reply_id", Key, primary_key=True),
        sa.Column("task_id", Key, sa.ForeignKey(f"{prefix}tasks.task_id"), nullable=False, unique=True),
        sa.Column("arrival", Counter, sa.Identity(), nullable=False),
        sa.Column("status", Key, nullable=False),
        sa.Column("payload", sa.Text),
        sa.Column("state", Key, nullable=False),
        sa.Column("max_attempts", Counter, nullable=False),
        sa.Column("attempts", Counter, nullable=False),
        sa.Column("fence", Counter, nullable=False),
        sa.Column("available_at", Seconds, nullable=False),
        sa.Column("owner", Key),
        sa.Column("lease_until", Seconds),
        sa.Column("last_owner", Key),
        sa.Column("last_error", sa.Text),
        sa.Column("created_at", Seconds, nullable=False),
        sa.Column("settled_at", Seconds),
        *_leased("'pending', 'sending', 'sent', 'dead'", "sending"),
        sa.CheckConstraint("max_attempts >= 1", name="max_attempts"),
        sa.CheckConstraint(ENDED.replace("state", "status"), name="status"),
        sa.CheckConstraint("(state IN ('sent', 'dead')) = (settled_at IS NOT NULL)", name="settled_whole"),
        sa.CheckConstraint("payload IS NOT NULL OR state = 'sent'", name="payload_until_sent"),
    )
    sa.Index(f"ix_{prefix}outbox_claimable", table.c.available_at, table.c.arrival, **_partial("state = 'pending'"))
    sa.Index(f"ix_{prefix}outbox_lease", table.c.lease_until, table.c.reply_id, **_partial("state = 'sending'"))
    sa.Index(f"ix_{prefix}outbox_dead", table.c.arrival, **_partial("state = 'dead'"))
    sa.Index(f"ix_{prefix}outbox_arrival", table.c.arrival)
    return table


def _receipts(metadata: sa.MetaData, prefix: str) -> sa.Table:
    return sa.Table(
        f"{prefix}receipts",
        metadata,
        sa.Column("reply_id", Key, primary_key=True),
        sa.Column("content_hash", Key, nullable=False),
        sa.Column("payload", sa.Text),
        sa.Column("received_at", Seconds, nullable=False),
    )


def _effects(metadata: sa.MetaData, prefix: str) -> sa.Table:
    return sa.Table(
        f"{prefix}effects",
        metadata,
        sa.Column("reply_id", Key, sa.ForeignKey(f"{prefix}receipts.reply_id"), primary_key=True),
        sa.Column("applied_at", Seconds, nullable=False),
    )


def _journal(metadata: sa.MetaData, prefix: str) -> sa.Table:
    table = sa.Table(
        f"{prefix}journal",
        metadata,
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("at", Seconds, nullable=False),
        sa.Column("task_id", Key, nullable=False),
        sa.Column("subject", Key, nullable=False),
        sa.Column("from_state", Key, nullable=False),
        sa.Column("to_state", Key, nullable=False),
        sa.Column("owner", Key),
        sa.Column("fence", Counter, nullable=False),
        sa.Column("attempt", Counter, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.CheckConstraint("subject IN ('task', 'reply')", name="subject"),
    )
    sa.Index(f"ix_{prefix}journal_task", table.c.task_id, table.c.seq)
    return table


def _fence_floor(metadata: sa.MetaData, prefix: str) -> sa.Table:
    return sa.Table(
        f"{prefix}fence_floor",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("floor", Counter, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
        sa.CheckConstraint("floor >= 0", name="floor"),
    )


def _partial(where: str) -> dict[str, Any]:
    return {"postgresql_where": sa.text(where), "sqlite_where": sa.text(where)}
