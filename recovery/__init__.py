"""Durable inbox, tasks and outbox for agents that send each other work, on SQLite and on PostgreSQL."""

from typing import TYPE_CHECKING, Any

from recovery.backend import open_async_engine, open_engine, prepare_engine
from recovery.clock import ManualClock
from recovery.errors import (
    BatchFailed,
    Busy,
    CommitUnknown,
    Fenced,
    InvalidEnvelope,
    Misconfigured,
    Overloaded,
    PayloadCollision,
    ReadOnly,
    RecoveryError,
    SchemaMismatch,
    StatementFailed,
    Unauthorized,
    Unavailable,
)
from recovery.messages import (
    Ack,
    AuthContext,
    Claim,
    Delivery,
    Dispatched,
    Envelope,
    Receipt,
    Reconciled,
    Reply,
    Settlement,
    Task,
    Transition,
    Unsettled,
    Verdict,
)
from recovery.migrate import migrate
from recovery.overview import Counts, Explanation
from recovery.queue import Queue
from recovery.receiver import Receiver
from recovery.repositories import (
    InboxRepository,
    JournalRepository,
    OutboxRepository,
    ReceiptRepository,
    TaskRepository,
)
from recovery.settings import Backoff, Settings

if TYPE_CHECKING:
    from recovery.async_queue import AsyncQueue
    from recovery.async_receiver import AsyncReceiver

__version__ = "0.1.0"
__all__ = [
    "Ack",
    "AsyncQueue",
    "AsyncReceiver",
    "AuthContext",
    "Backoff",
    "BatchFailed",
    "Busy",
    "Claim",
    "CommitUnknown",
    "Counts",
    "Delivery",
    "Dispatched",
    "Envelope",
    "Explanation",
    "Fenced",
    "InboxRepository",
    "InvalidEnvelope",
    "JournalRepository",
    "ManualClock",
    "Misconfigured",
    "OutboxRepository",
    "Overloaded",
    "PayloadCollision",
    "Queue",
    "ReadOnly",
    "Receipt",
    "ReceiptRepository",
    "Receiver",
    "Reconciled",
    "RecoveryError",
    "Reply",
    "SchemaMismatch",
    "Settings",
    "Settlement",
    "StatementFailed",
    "Task",
    "TaskRepository",
    "Transition",
    "Unauthorized",
    "Unavailable",
    "Unsettled",
    "Verdict",
    "migrate",
    "open_async_engine",
    "open_engine",
    "prepare_engine",
]

_ASYNC = {"AsyncQueue": "async_queue", "AsyncReceiver": "async_receiver"}


def __getattr__(name: str) -> Any:
    # Asyncio needs greenlet, which is an extra: imported when it is asked for, so that the rest works without.
    if name not in _ASYNC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"recovery.{_ASYNC[name]}"), name)
    except ImportError as error:
        raise ImportError(f"{name} needs an extra: pip install 'recovery[async]'") from error
