"""What goes in and what comes out: frozen records, one for each thing that the contract names.

Payloads, results and error texts stay out of every `repr`: they may be secret, and a repr ends up in a log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

DEFAULT_QUEUE: Final = "default"
DEFAULT_QUEUES: Final = (DEFAULT_QUEUE,)
"""What a claim asks where it names none."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message that asks for work. Nothing is checked until it is received.

    `payload` is a JSON object, `deadline` seconds since the epoch or an aware datetime, `hops` how many agents the
    request came through by its sender's word. `queue` is where workers ask for it, `priority` 0 to 9, higher first.
    """

    message_id: str
    sender: str
    payload: dict[str, Any] = field(repr=False, hash=False)
    deadline: float | datetime
    max_attempts: int = 3
    hops: int = 0
    kind: str = "task"
    queue: str = field(default=DEFAULT_QUEUE, kw_only=True)
    priority: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class AuthContext:
    """Who is calling, by the word of an adapter that authenticated the connection.

    Making one is not authentication. Never build it from the request's own content.
    """

    principal: str


@dataclass(frozen=True, slots=True)
class Ack:
    """The input is durable. It says nothing about the work."""

    ack: str
    task_id: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's time-limited ownership of a task. Pass it whole to renew, finish, fail and release.

    `payload` is decoded from the stored text; `lease_until` and `deadline` are seconds since the epoch; `attempt`
    counts from 1; `fence` only ever grows for a task.
    """

    task_id: str
    owner: str
    fence: int
    attempt: int
    payload: Any = field(repr=False, hash=False)
    lease_until: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """One dispatcher's time-limited ownership of a reply. `payload` is the stored text, the same at every attempt."""

    reply_id: str
    owner: str
    fence: int
    attempt: int
    payload: str = field(repr=False)
    lease_until: float


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of one delivery, for `settle_batch`: see `settle`."""

    delivery: Delivery
    delivered: bool
    error: object = field(default=None, repr=False)
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one item of a batch: the row's new state, or the error that only this item met."""

    identity: str
    state: str | None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether the item was stored."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What became of one delivery: the reply's state now, and whether the receiver had it already."""

    reply_id: str
    state: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receiver's confirmation: the reply is stored and its effect applied, now or (`duplicate`) before."""

    ack: str
    reply_id: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it is stored. `payload` and `result` are the stored JSON text; times are seconds since the epoch."""

    task_id: str
    principal: str
    message_id: str
    fingerprint: str
    queue: str
    priority: int
    state: str
    payload: str | None = field(repr=False)
    deadline: float
    hops: int
    max_attempts: int
    attempts: int
    fence: int
    available_at: float
    owner: str | None
    lease_until: float | None
    last_owner: str | None
    last_error: str | None = field(repr=False)
    result: str | None = field(repr=False)
    reason: str | None = field(repr=False)
    received_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it is stored. `status` is the task's terminal state, `state` how the delivery stands."""

    reply_id: str
    task_id: str
    status: str
    payload: str | None = field(repr=False)
    state: str
    max_attempts: int
    attempts: int
    fence: int
    available_at: float
    owner: str | None
    lease_until: float | None
    last_owner: str | None
    last_error: str | None = field(repr=False)
    created_at: float
    settled_at: float | None


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the journal: what moved, from where to where, when, under whose claim, and why."""

    seq: int
    at: float
    task_id: str
    subject: str
    from_state: str
    to_state: str
    owner: str | None
    fence: int
    attempt: int
    why: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A row that reconcile could not settle: its subject ("task" or "reply"), its id, and the class of the error."""

    subject: str
    identity: str
    error: str


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What reconcile did: how many tasks and replies it settled, and which rows it could not."""

    tasks: int
    replies: int
    unsettled: tuple[Unsettled, ...] = ()
