"""The tables: what is stored, which states it may be in, and one index for each question that is asked.

This is the shape that the repositories write against. The ladder in `migrations/` makes it in a database, step by
step and frozen; a test shows that both end in the same catalog.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from recovery import states
from recovery.errors import Misconfigured
from recovery.messages import DEFAULT_QUEUE

VERSION: Final = "0002"
"""The revision of the ladder that this release reads and writes."""

NAMING: Final = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
}
PREFIX: Final = re.compile(r"((?!sqlite_)[a-z][a-z0-9_]{0,23})?\Z")
"""SQLite keeps the names that begin with `sqlite_` for itself."""

Key: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text that compares and sorts by its bytes, whatever the database's locale; SQLite does so by itself."""
Counter: Final = sa.BigInteger()
Serial: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A primary key that counts up by itself: SQLite does that only for a column called INTEGER."""
Seconds: Final[sa.Double[float]] = sa.Double()


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The tables of one prefix. One object per prefix and process: compare by identity."""

    prefix: str
    metadata: sa.MetaData
    inbox: sa.Table = field(init=False)
    tasks: sa.Table = field(init=False)
    outbox: sa.Table = field(init=False)
    receipts: sa.Table = field(init=False)
    effects: sa.Table = field(init=False)
    journal: sa.Table = field(init=False)
    fence_floor: sa.Table = field(init=False)
    version: sa.Table = field(init=False)

    def __post_init__(self) -> None:
        makers = (_inbox, _tasks, _outbox, _receipts, _effects, _journal, _fence_floor)
        for maker in makers:
            name = maker.__name__[1:]
            object.__setattr__(self, name, maker(self.metadata, self.prefix))
        # Alembic makes and keeps this one; it stands outside the metadata so that nobody creates it twice.
        version = sa.Table(f"{self.prefix}recovery_version", sa.MetaData(), sa.Column("version_num", sa.String(32)))
        object.__setattr__(self, "version", version)

    def __reduce__(self) -> tuple[Any, ...]:
        return tables, (self.prefix,)


@cache
def tables(prefix: str = "") -> Tables:
    """The tables whose names begin with `prefix` (lower-case letters, digits and `_`, at most 24; not `sqlite_…`)."""
    if type(prefix) is not str or not PREFIX.match(prefix):
        raise Misconfigured(
            "table_prefix must be empty or lower-case letters, digits and _, at most 24 characters, not sqlite_…"
        )
    return Tables(prefix, sa.MetaData(naming_convention=NAMING))


def _one_of(column: str, values: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


def _leased(moves: states.Moves, held: str) -> tuple[sa.CheckConstraint, ...]:
    """What is true of every leased row: a known state, a lease that is whole or absent, counters within bounds."""
    whole = f"(state = '{held}') = (owner IS NOT NULL) AND (owner IS NULL) = (lease_until IS NULL)"
    return (
        sa.CheckConstraint(_one_of("state", states.stored(moves)), name="state"),
        sa.CheckConstraint(whole, name="lease_whole"),
        sa.CheckConstraint("attempts >= 0 AND attempts <= max_attempts", name="attempts"),
        sa.CheckConstraint("state <> 'pending' OR attempts < max_attempts", name="pending_has_attempts"),
        sa.CheckConstraint("fence >= 0", name="fence"),
    )


def _inbox(metadata: sa.MetaData, prefix: str) -> sa.Table:
    """What was accepted: the identity of each message, and the hash that a replay is compared with."""
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
    """The work that an envelope asks for: its budget, its lease, and how it ended."""
    terminal, endings = _one_of("state", states.TASK_ENDED), _one_of("state", states.TASK_OPEN)
    table = sa.Table(
        f"{prefix}tasks",
        metadata,
        sa.Column("task_id", Key, sa.ForeignKey(f"{prefix}inbox.task_id"), primary_key=True),
        sa.Column("arrival", Counter, sa.Identity(), nullable=False),
        sa.Column("queue", Key, nullable=False, server_default=DEFAULT_QUEUE),
        sa.Column("priority", sa.Integer, nullable=False, server_default=sa.text("0")),
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
        *_leased(states.TASK_MOVES, states.RUNNING),
        sa.CheckConstraint("max_attempts >= 1 AND max_attempts <= 10", name="max_attempts"),
        sa.CheckConstraint("hops >= 0", name="hops"),
        sa.CheckConstraint("priority >= 0 AND priority <= 9", name="priority"),
        sa.CheckConstraint(f"({terminal}) = (ended_at IS NOT NULL)", name="ended_whole"),
        sa.CheckConstraint("(state = 'done') OR result IS NULL", name="result_when_done"),
        sa.CheckConstraint(f"(reason IS NOT NULL) = ({terminal} AND state <> 'done')", name="reason_when_not_done"),
        sa.CheckConstraint(f"payload IS NOT NULL OR {terminal}", name="payload_while_open"),
    )
    claimable = (table.c.queue, table.c.priority, table.c.available_at, table.c.arrival)
    sa.Index(f"ix_{prefix}tasks_claimable", *claimable, **_partial("state = 'pending'"))
    sa.Index(f"ix_{prefix}tasks_deadline", table.c.deadline, table.c.task_id, **_partial(endings))
    sa.Index(f"ix_{prefix}tasks_lease", table.c.lease_until, table.c.task_id, **_partial("state = 'running'"))
    sa.Index(f"ix_{prefix}tasks_arrival", table.c.arrival)
    return table


def _outbox(metadata: sa.MetaData, prefix: str) -> sa.Table:
    """Each task's one reply, kept until a receiver has stored a receipt for it."""
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
        *_leased(states.REPLY_MOVES, states.SENDING),
        sa.CheckConstraint("max_attempts >= 1", name="max_attempts"),
        sa.CheckConstraint(_one_of("status", states.TASK_ENDED), name="status"),
        sa.CheckConstraint("(state IN ('sent', 'dead')) = (settled_at IS NOT NULL)", name="settled_whole"),
        sa.CheckConstraint("payload IS NOT NULL OR state = 'sent'", name="payload_until_sent"),
    )
    sa.Index(f"ix_{prefix}outbox_claimable", table.c.available_at, table.c.arrival, **_partial("state = 'pending'"))
    sa.Index(f"ix_{prefix}outbox_lease", table.c.lease_until, table.c.reply_id, **_partial("state = 'sending'"))
    sa.Index(f"ix_{prefix}outbox_dead", table.c.arrival, **_partial("state = 'dead'"))
    sa.Index(f"ix_{prefix}outbox_arrival", table.c.arrival)
    return table


def _receipts(metadata: sa.MetaData, prefix: str) -> sa.Table:
    """The receiver's memory: which replies it has stored, and a hash of what each one said."""
    return sa.Table(
        f"{prefix}receipts",
        metadata,
        sa.Column("reply_id", Key, primary_key=True),
        sa.Column("content_hash", Key, nullable=False),
        sa.Column("payload", sa.Text),
        sa.Column("received_at", Seconds, nullable=False),
    )


def _effects(metadata: sa.MetaData, prefix: str) -> sa.Table:
    """One row for each reply whose effect was applied, in the transaction that stored its receipt."""
    return sa.Table(
        f"{prefix}effects",
        metadata,
        sa.Column("reply_id", Key, sa.ForeignKey(f"{prefix}receipts.reply_id"), primary_key=True),
        sa.Column("applied_at", Seconds, nullable=False),
    )


def _journal(metadata: sa.MetaData, prefix: str) -> sa.Table:
    """Every transition, written in the transaction that made it."""
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
        sa.CheckConstraint(_one_of("subject", ("task", "reply")), name="subject"),
    )
    sa.Index(f"ix_{prefix}journal_task", table.c.task_id, table.c.seq)
    return table


def _fence_floor(metadata: sa.MetaData, prefix: str) -> sa.Table:
    """One row: no fence at or below this number is ever handed out again in this database."""
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
