"""What two databases hold, by plain SQL, and the small part of it that the contract speaks of."""

from __future__ import annotations

import hashlib
import json
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeAlias

from recovery import Envelope

Row: TypeAlias = Any
"""One row, with the names of its columns."""
Select: TypeAlias = Callable[[str], tuple[tuple[str, ...], list[tuple[Any, ...]]]]
"""Runs a SELECT; returns the names of its columns and its rows."""

QUEUE_TABLES: Final = {
    "inbox": "task_id",
    "tasks": "arrival",
    "outbox": "arrival",
    "journal": "seq",
    "fence_floor": "id",
}
RECEIVER_TABLES: Final = {"receipts": "reply_id", "effects": "reply_id", "applied": "reply_id"}
"""Each table with the column that orders it. `applied` is the receiver's business: an effect without a unique key."""

FINGERPRINT: Final = ("deadline", "hops", "kind", "max_attempts", "message_id", "payload", "sender")
ENDED: Final = ("done", "failed", "cancelled", "expired", "hop_limit")


@dataclass(frozen=True, slots=True)
class Queue:
    """The tables of the queue's database."""

    inbox: tuple[Row, ...]
    tasks: tuple[Row, ...]
    outbox: tuple[Row, ...]
    journal: tuple[Row, ...]
    fence_floor: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Receiver:
    """The tables of the receiver's database."""

    receipts: tuple[Row, ...]
    effects: tuple[Row, ...]
    applied: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """Both databases."""

    queue: Queue
    receiver: Receiver


def read_queue(select: Select) -> Queue:
    """All rows of the queue's database."""
    return Queue(**{name: _read(select, name, order) for name, order in QUEUE_TABLES.items()})


def read_receiver(select: Select) -> Receiver:
    """All rows of the receiver's database."""
    return Receiver(**{name: _read(select, name, order) for name, order in RECEIVER_TABLES.items()})


def _read(select: Select, name: str, order: str) -> tuple[Row, ...]:
    names, rows = select(f"SELECT * FROM {name} ORDER BY {order}")
    kind = _kind(name, names)
    return tuple(kind._make(row) for row in rows)


@cache
def _kind(name: str, names: tuple[str, ...]) -> Any:
    return namedtuple(name, names)  # noqa: PYI024 - made from the table itself


@dataclass(frozen=True, slots=True)
class Task:
    """What the contract says of a task. `due_at` is None where nobody waits for it; times in seconds."""

    task_id: str
    state: str
    owner: str | None
    lease_until: float | None
    fence: int
    attempts: int
    max_attempts: int
    due_at: float | None
    deadline: float
    last_owner: str | None
    result: str | None
    reason: str | None
    priority: int = field(compare=False)
    arrival: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the contract says of a reply. Which of two that came at once is the first, it leaves open."""

    reply_id: str
    status: str
    payload: str
    state: str
    owner: str | None
    lease_until: float | None
    fence: int
    attempts: int
    max_attempts: int
    due_at: float | None
    arrival: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Book:
    """Both databases, as far as the contract speaks of them: tasks and replies by id, receipts, applied effects."""

    tasks: Mapping[str, Task]
    replies: Mapping[str, Reply]
    receipts: Mapping[str, str]
    applied: tuple[str, ...]


def book(contents: Contents) -> Book:
    """What the rows say."""
    queue, receiver = contents.queue, contents.receiver
    return Book(
        {row.task_id: _task(row) for row in queue.tasks},
        {row.reply_id: _reply(row) for row in queue.outbox},
        {row.reply_id: row.payload for row in receiver.receipts},
        tuple(row.reply_id for row in receiver.applied),
    )


def _task(row: Row) -> Task:
    due_at = row.available_at if row.state == "pending" else None
    leased = (row.owner, row.lease_until, row.fence, row.attempts, row.max_attempts)
    ended = (row.last_owner, row.result, row.reason)
    return Task(row.task_id, row.state, *leased, due_at, row.deadline, *ended, row.priority, row.arrival)


def _reply(row: Row) -> Reply:
    due_at = row.available_at if row.state == "pending" else None
    leased = (row.owner, row.lease_until, row.fence, row.attempts, row.max_attempts)
    return Reply(row.reply_id, row.status, row.payload, row.state, *leased, due_at, row.arrival)


def canonical(value: object) -> str:
    """Canonical JSON, as section 1 of the contract has it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@cache
def task_id(principal: str, message_id: str) -> str:
    """The id of a message's task."""
    return hashlib.sha256(canonical([principal, message_id]).encode()).hexdigest()


@cache
def reply_bytes(task_id: str, status: str, said: str) -> str:
    """The reply of an ended task; `said` is its result or its reason, as canonical JSON."""
    return f'{{"kind":"result","result":{said},"status":{canonical(status)},"task_id":{canonical(task_id)}}}'


@cache
def reply_id(task_id: str) -> str:
    """The id of a task's reply."""
    return f"reply:{task_id}"


def fingerprint(envelope: Envelope) -> str:
    """What tells a message from another under the same id."""
    listed: dict[str, object] = {name: getattr(envelope, name) for name in FINGERPRINT}
    if envelope.priority:
        listed["priority"] = envelope.priority
    return f"v1:{hashlib.sha256(canonical(listed).encode()).hexdigest()}"
