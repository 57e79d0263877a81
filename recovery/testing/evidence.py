"""What a verdict rests on: the rows of both databases, the journal as holds, and the operations of every actor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from recovery.testing.history import FAIL, OK, UNKNOWN, Operation
from recovery.testing.promises import DEFAULT_MAX_HOPS, HELD, REPLY, TASK

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]
"""A subject (`task` or `reply`) and the id of the task."""
HoldKey: TypeAlias = tuple[str, str, int]
"""The same with a fence."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: the rule's name, the task, reply or database it was broken for, and what was seen."""

    rule: str
    subject: str
    seen: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.seen}"


@dataclass(frozen=True, slots=True)
class QueueRows:
    """Every row of a queue's tables in one snapshot, and the database's clock at it (seconds since the epoch)."""

    inbox: Sequence[Row]
    tasks: Sequence[Row]
    outbox: Sequence[Row]
    journal: Sequence[Row]
    now: float


@dataclass(frozen=True, slots=True)
class ReceiverRows:
    """Every receipt and every mark of an effect; `own_effects` are reply ids in a table of the receiver's own."""

    receipts: Sequence[Row]
    effects: Sequence[Row]
    own_effects: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """One claim by the journal: who held what from when on, and the move that ended it (None while it lasts)."""

    subject: str
    task_id: str
    owner: str
    fence: int
    attempt: int
    at: float
    left: Row | None

    @property
    def key(self) -> HoldKey:
        return self.subject, self.task_id, self.fence

    @property
    def name(self) -> str:
        """How a violation names it."""
        return named(self.subject, self.task_id)


@dataclass(frozen=True, slots=True)
class Grant:
    """One claim by the word of an actor that was given it."""

    operation: Operation
    subject: str
    task_id: str
    owner: str
    fence: int
    attempt: int
    lease_until: float

    @property
    def key(self) -> HoldKey:
        return self.subject, self.task_id, self.fence


@dataclass(frozen=True)
class Evidence:
    """All that is looked at. `drained` says that the actors went on until there was nothing left to do."""

    operations: Sequence[Operation]
    queue: QueueRows
    receiver: ReceiverRows
    max_hops: int = DEFAULT_MAX_HOPS
    drained: bool = False

    def named(self, *names: str, events: Iterable[str] = (OK, FAIL, UNKNOWN)) -> Iterator[Operation]:
        """The operations of these names that ended so."""
        wanted = set(events)
        return (one for one in self.operations if one.name in names and one.event in wanted)

    @cached_property
    def inbox(self) -> dict[str, list[Row]]:
        """Inbox rows by task id."""
        return _grouped(self.queue.inbox, "task_id")

    @cached_property
    def tasks(self) -> dict[str, list[Row]]:
        """Tasks by their id."""
        return _grouped(self.queue.tasks, "task_id")

    @cached_property
    def replies(self) -> dict[str, list[Row]]:
        """Replies by the id of their task."""
        return _grouped(self.queue.outbox, "task_id")

    @cached_property
    def receipts(self) -> dict[str, list[Row]]:
        """Receipts by reply id."""
        return _grouped(self.receiver.receipts, "reply_id")

    @cached_property
    def effects(self) -> dict[str, list[Row]]:
        """The library's marks of effects by reply id."""
        return _grouped(self.receiver.effects, "reply_id")

    @cached_property
    def own_effects(self) -> dict[str, list[Row]] | None:
        """The receiver's own effects by reply id."""
        own = self.receiver.own_effects
        return None if own is None else _grouped([{"reply_id": one} for one in own], "reply_id")

    @cached_property
    def journal(self) -> dict[Key, list[Row]]:
        """The moves of each task and of each reply, oldest first."""
        moves: dict[Key, list[Row]] = defaultdict(list)
        for row in sorted(self.queue.journal, key=lambda row: row["seq"]):
            moves[row["subject"], row["task_id"]].append(row)
        return dict(moves)

    @cached_property
    def holds(self) -> dict[Key, list[Hold]]:
        """The claims of each task and of each reply by the journal, oldest first."""
        return {key: list(_holds(*key, moves)) for key, moves in self.journal.items()}

    @cached_property
    def holds_by_key(self) -> dict[HoldKey, Hold]:
        """The same, one by one."""
        return {hold.key: hold for holds in self.holds.values() for hold in holds}

    @cached_property
    def grants(self) -> list[Grant]:
        """Every claim that an actor was given, by its own word."""
        asked = self.named("claim", "finish_and_claim", "claim_reply", events=(OK,))
        return [grant for one in asked for grant in _grants(one)]

    @cached_property
    def lease_ends(self) -> dict[HoldKey, float]:
        """Until when each claim was good at most, by the claim and every renewal that was answered."""
        ends: dict[HoldKey, float] = {}
        for grant in self.grants:
            ends[grant.key] = max(grant.lease_until, ends.get(grant.key, grant.lease_until))
        for one in self.named("renew", "renew_reply", events=(OK,)):
            key, until = hold_key(one), one.answered["lease_until"]
            ends[key] = max(until, ends.get(key, until))
        return ends

    @cached_property
    def unsure_leases(self) -> set[HoldKey]:
        """Claims that a renewal may have prolonged without an answer."""
        return {hold_key(one) for one in self.named("renew", "renew_reply", events=(UNKNOWN,))}

    @cached_property
    def asked_of_holds(self) -> dict[HoldKey, list[Operation]]:
        """What the holder of each claim asked for with it, but for what was refused."""
        asked: dict[HoldKey, list[Operation]] = defaultdict(list)
        for one in self.named("finish", "finish_and_claim", "fail", "release", "settle", events=(OK, UNKNOWN)):
            asked[hold_key(one)].append(one)
        return dict(asked)


def named(subject: str, task_id: str) -> str:
    """How a violation names a task or a reply."""
    return f"{subject} {task_id}"


def hold_key(operation: Operation) -> HoldKey:
    """The claim that an operation was about."""
    subject = REPLY if operation.name in ("settle", "renew_reply") else TASK
    return subject, operation.asked["task_id"], operation.asked["fence"]


def _grants(operation: Operation) -> Iterator[Grant]:
    subject = REPLY if operation.name == "claim_reply" else TASK
    for one in operation.answered["claims"]:
        facts = (one["task_id"], operation.asked["owner"], one["fence"], one["attempt"], one["lease_until"])
        yield Grant(operation, subject, *facts)


def _holds(subject: str, task_id: str, moves: Sequence[Row]) -> Iterator[Hold]:
    for index, row in enumerate(moves):
        if row["to_state"] == HELD[subject]:
            left = moves[index + 1] if index + 1 < len(moves) else None
            yield Hold(subject, task_id, row["owner"], row["fence"], row["attempt"], row["at"], left)


def _grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[column]].append(row)
    return dict(groups)
