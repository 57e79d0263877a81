"""What the model remembers: the seven tables as plain objects, and the one rule that a lease has."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from tests.model.accepted import canonical
from tests.model.things import Thing, Words, refused

TASK_OPEN = ("pending", "running")
STATES = ("pending", "running", "done", "failed", "cancelled", "expired", "hop_limit")
REPLY_STATES = ("pending", "sending", "sent", "dead")
Contents = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Wait:
    """A backoff without jitter."""

    first_seconds: float
    factor: float = 1.0
    cap_seconds: float = 1e9

    def after(self, attempt: int) -> float:
        """Seconds to wait after failed attempt `attempt`, from 1."""
        return min(self.cap_seconds, self.first_seconds * self.factor ** (attempt - 1))


@dataclass(frozen=True)
class Knobs:
    """The settings of a queue, as the model needs them."""

    lease_seconds: float = 10.0
    delivery_lease_seconds: float = 10.0
    backoff: Wait = Wait(2.0)
    delivery_backoff: Wait = Wait(2.0)
    max_hops: int = 4
    delivery_attempts: int = 3
    result_bytes_max: int = 1024 * 1024
    allowed_sources: frozenset[str] = frozenset({"agent-a", "agent-b"})


@dataclass
class Row:
    """What tasks and replies have in common."""

    task_id: str
    state: str
    max_attempts: int
    available_at: float
    attempts: int = 0
    fence: int = 0
    owner: str | None = None
    lease_until: float | None = None
    last_owner: str | None = None
    last_error: Any = None
    arrival: int = 0

    @property
    def spent(self) -> bool:
        """Whether no attempt is left."""
        return self.attempts >= self.max_attempts

    def take(self, owner: str, until: float, floor: int) -> None:
        """Give it to an owner, under a fence above all before it."""
        self.owner = self.last_owner = owner
        self.lease_until, self.fence, self.attempts = until, max(self.fence, floor) + 1, self.attempts + 1

    def drop(self, state: str, available_at: float | None = None) -> None:
        """Take it from its owner."""
        self.state, self.owner, self.lease_until = state, None, None
        self.available_at = self.available_at if available_at is None else available_at


@dataclass
class Task(Row):
    """One row of `tasks`."""

    queue: str = "default"
    priority: int = 0
    payload: str = ""
    deadline: float = 0.0
    hops: int = 0
    received_at: float = 0.0
    result: str | None = None
    reason: Any = None
    ended_at: float | None = None


@dataclass
class Reply(Row):
    """One row of `outbox`."""

    reply_id: str = ""
    status: str = ""
    payload: str = ""
    created_at: float = 0.0
    settled_at: float | None = None


@dataclass
class Ledger:
    """Everything that is stored, and the time."""

    knobs: Knobs
    now: float = 1000.0
    inbox: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    outbox: dict[str, Reply] = field(default_factory=dict)
    receipts: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    effects: dict[str, float] = field(default_factory=dict)
    journal: list[tuple[Any, ...]] = field(default_factory=list)
    floor: int = 0

    def note(self, subject: str, row: Row, source: str, why: Any, owner: str | None = None) -> None:
        """A transition: when, which task, what, from, to, by whom, under which fence and attempt, and why."""
        self.journal.append((self.now, row.task_id, subject, source, row.state, owner, row.fence, row.attempts, why))

    def holds(self, row: Row | None, claim: Thing, held: str) -> bool:
        """Whether a claim still owns its row: held, same owner, same fence, lease not yet over."""
        if row is None or row.state != held or row.lease_until is None or type(claim["fence"]) is not int:
            return False
        return row.fence == claim["fence"] and row.owner == claim["owner"] and row.lease_until > self.now

    def owned_task(self, claim: Thing) -> Task:
        """The task that a claim owns, its deadline not over either. Raises Fenced."""
        task: Task | None = found(self.tasks, claim["task_id"])
        if task is None or not self.holds(task, claim, "running") or task.deadline <= self.now:
            raise refused("Fenced")
        return task

    def owned_reply(self, delivery: Thing) -> Reply:
        """The reply that a delivery owns. Raises Fenced."""
        reply: Reply | None = found(self.outbox, delivery["reply_id"])
        if reply is None or not self.holds(reply, delivery, "sending"):
            raise refused("Fenced")
        return reply

    def end(self, task: Task, state: str, *, reason: Any = None, result: str | None = None, why: Any = None) -> None:
        """End a task: the row, its one reply, and the journal."""
        source, owner = task.state, task.owner
        task.drop(state)
        task.reason, task.result, task.ended_at = reason, result, self.now
        self.note("task", task, source, why or reason or Words(), owner)
        self.put(task)

    def put(self, task: Task) -> None:
        """The reply of a task that ended just now."""
        outcome = canonical(task.reason) if task.result is None else task.result
        reply = Reply(
            task_id=task.task_id,
            state="pending",
            max_attempts=self.knobs.delivery_attempts,
            available_at=self.now,
            reply_id=f"reply:{task.task_id}",
            status=task.state,
            payload=f'{{"kind":"result","result":{outcome},"status":"{task.state}","task_id":"{task.task_id}"}}',
            created_at=self.now,
            arrival=len(self.outbox),
        )
        self.outbox[reply.reply_id] = reply
        self.note("reply", reply, "new", Words())

    def learn(self, reply_ids: list[str]) -> None:
        """Number replies in this order.

        Those that were made at the same moment have no order by the contract, but keep the one that they got.
        """
        for number, reply_id in enumerate(reply_ids):
            self.outbox[reply_id].arrival = number

    def contents(self) -> Contents:
        """Every table as tuples of the columns of COLUMNS."""
        tasks = sorted(self.tasks.values(), key=lambda task: task.arrival)
        replies = sorted(self.outbox.values(), key=lambda reply: reply.arrival)
        return {
            "inbox": [self.inbox[key] for key in sorted(self.inbox)],
            "tasks": [tuple(getattr(task, name) for name in COLUMNS["tasks"]) for task in tasks],
            "outbox": [tuple(getattr(reply, name) for name in COLUMNS["outbox"]) for reply in replies],
            "receipts": [self.receipts[key] for key in sorted(self.receipts)],
            "effects": sorted(self.effects.items()),
            "journal": self.journal,
            "fence_floor": [(1, self.floor)],
        }


COLUMNS = {
    "inbox": ("task_id", "principal", "message_id", "kind", "fingerprint", "scope_name", "scope_version"),
    "tasks": tuple(one.name for one in fields(Task) if one.name != "arrival"),
    "outbox": tuple(one.name for one in fields(Reply) if one.name != "arrival"),
    "receipts": ("reply_id", "content_hash", "payload", "received_at"),
    "effects": ("reply_id", "applied_at"),
    "journal": ("at", "task_id", "subject", "from_state", "to_state", "owner", "fence", "attempt", "why"),
    "fence_floor": ("id", "floor"),
}
"""What is compared. Left out are the numbers that a database counts by itself: they order, and may have gaps."""


def found(rows: dict[str, Any], key: object) -> Any:
    """The row of that key; None for a key that is none."""
    return rows.get(key) if type(key) is str else None


def record(kind: str, row: Any, names: tuple[str, ...]) -> Thing:
    """A public record from a row."""
    return Thing(kind, {name: getattr(row, name) for name in names})
