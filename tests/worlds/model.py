"""What the contract says that each verb answers, and what it leaves behind. It shares no code with the product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from tests.worlds.contents import ENDED, Book, Reply, Task, canonical, reply_bytes, reply_id

FENCED: Final = "Fenced"
Answer: TypeAlias = tuple[str, str | None, int, int, float | None]
"""A claim or a delivery in plain words: its id, owner, fence, attempt and the end of its lease."""


class Leased(Protocol):
    """A claim or a delivery."""

    @property
    def owner(self) -> str: ...

    @property
    def fence(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Leases and backoffs in seconds, and how often a reply is sent."""

    lease: float = 2.0
    backoff: float = 1.0
    delivery_lease: float = 2.0
    delivery_backoff: float = 1.0
    delivery_attempts: int = 2


class Model:
    """The tables as a book, at one moment. Each verb changes them and returns its answer; a lost claim is FENCED."""

    def __init__(self, book: Book, now: float, times: Times) -> None:
        self.now, self.times = now, times
        self.tasks, self.replies = dict(book.tasks), dict(book.replies)
        self.receipts, self.applied = dict(book.receipts), book.applied

    @property
    def book(self) -> Book:
        """What is stored now."""
        return Book(self.tasks, self.replies, self.receipts, self.applied)

    def receive(self, task_id: str, deadline: float, max_attempts: int, priority: int) -> bool:
        """Store a message; True where it was stored before."""
        if task_id in self.tasks:
            return True
        arrival = 1 + max((task.arrival for task in self.tasks.values()), default=0)
        leased = (None, None, 0, 0, max_attempts)
        task = Task(task_id, "pending", *leased, self.now, deadline, None, None, None, priority, arrival)
        self.tasks[task_id] = task
        if deadline <= self.now:
            self._end(task, "expired", reason="deadline reached")
        return False

    def claim(self, owner: str) -> Answer | None:
        """Settle what is due, and hold the first task."""
        self._settle_tasks()
        waiting = [t for t in self.tasks.values() if t.due_at is not None and t.due_at <= self.now < t.deadline]
        if not waiting:
            return None
        first = min(waiting, key=lambda task: (-task.priority, task.due_at, task.arrival))
        held = self._held(first, "running", owner, self.times.lease)
        self.tasks[first.task_id] = replace(held, last_owner=owner)
        return _answer(held)

    def renew(self, task_id: str, claim: Leased) -> Answer | str:
        """Prolong a claim from now on."""
        task = self._owned(task_id, claim)
        if task is None:
            return FENCED
        self.tasks[task_id] = replace(task, lease_until=self.now + self.times.lease)
        return _answer(self.tasks[task_id])

    def finish(self, task_id: str, claim: Leased, result: object) -> str | None:
        """End a task as done, or find that this very claim did so with this very result; both answer None."""
        text = canonical(result)
        task = self._owned(task_id, claim)
        if task is not None:
            self._end(task, "done", result=text)
            return None
        stored = self.tasks[task_id]
        ended_by = (stored.state, stored.fence, stored.last_owner, stored.result)
        return None if ended_by == ("done", claim.fence, claim.owner, text) else FENCED

    def finish_and_claim(self, task_id: str, claim: Leased, result: object) -> Answer | str | None:
        """Finish, and claim for the same owner; nothing at all where the claim is lost."""
        if self.finish(task_id, claim, result) == FENCED:
            return FENCED
        return self.claim(claim.owner)

    def fail(self, task_id: str, claim: Leased, reason: str, *, retryable: bool) -> str:
        """Try again later, while attempts and time last."""
        task = self._owned(task_id, claim)
        if task is None:
            return FENCED
        if not retryable or task.attempts >= task.max_attempts:
            return self._end(task, "failed", reason=reason)
        again_at = self.now + self.times.backoff
        if again_at >= task.deadline:
            return self._end(task, "expired", reason="deadline reached")
        return self._free(task, again_at)

    def release(self, task_id: str, claim: Leased) -> str:
        """Hand work back; the attempt is spent."""
        task = self._owned(task_id, claim)
        return FENCED if task is None else self._given_up(task)

    def cancel(self, task_id: str) -> bool:
        """End an open task."""
        task = self.tasks.get(task_id)
        if task is None or task.state in ENDED:
            return False
        if task.deadline <= self.now:
            self._end(task, "expired", reason="deadline reached")
            return False
        self._end(task, "cancelled", reason="cancelled by scheduler")
        return True

    def reconcile(self) -> tuple[int, int]:
        """Settle everything that is due; how many tasks and replies that was."""
        return self._settle_tasks(), self._settle_replies()

    def settle_one_task(self, task_id: str) -> bool:
        """Settle a task, if it is due; whether it was."""
        return task_id in self.tasks and self._settle_task(self.tasks[task_id])

    def settle_one_reply(self, task_id: str) -> bool:
        """Settle a task's reply, if it is due; whether it was."""
        reply = self.replies.get(reply_id(task_id))
        return reply is not None and self._settle_reply(reply)

    def claim_reply(self, owner: str) -> Answer | None:
        """Settle what is due, and hold the reply that became due first."""
        self._settle_replies()
        waiting = [r for r in self.replies.values() if r.due_at is not None and r.due_at <= self.now]
        if not waiting:
            return None
        first = min(waiting, key=lambda reply: (reply.due_at, reply.arrival))
        held = self._held(first, "sending", owner, self.times.delivery_lease)
        self.replies[first.reply_id] = held
        return _answer(held)

    def renew_reply(self, reply_id: str, delivery: Leased) -> Answer | str:
        """Prolong a delivery from now on."""
        reply = self._sent_by(reply_id, delivery)
        if reply is None:
            return FENCED
        self.replies[reply_id] = replace(reply, lease_until=self.now + self.times.delivery_lease)
        return _answer(self.replies[reply_id])

    def settle(self, reply_id: str, delivery: Leased, *, delivered: bool, permanent: bool) -> str:
        """Store what became of a delivery."""
        reply = self._sent_by(reply_id, delivery)
        if reply is None:
            return FENCED
        if delivered:
            return self._settled(reply, "sent")
        if permanent or reply.attempts >= reply.max_attempts:
            return self._settled(reply, "dead")
        return self._settled(reply, "pending", self.now + self.times.delivery_backoff)

    def accept(self, reply_id: str, payload: str) -> bool:
        """Store a receipt and apply its effect; True where that was done before."""
        if reply_id in self.receipts:
            return True
        self.receipts[reply_id] = payload
        self.applied = tuple(sorted([*self.applied, reply_id]))
        return False

    def _owned(self, task_id: str, claim: Leased) -> Task | None:
        task = self.tasks[task_id]
        return task if task.deadline > self.now and _holds(task, "running", claim, self.now) else None

    def _sent_by(self, reply_id: str, delivery: Leased) -> Reply | None:
        reply = self.replies[reply_id]
        return reply if _holds(reply, "sending", delivery, self.now) else None

    def _held(self, row: Any, state: str, owner: str, lease: float) -> Any:
        more = {"fence": row.fence + 1, "attempts": row.attempts + 1}
        return replace(row, state=state, owner=owner, lease_until=self.now + lease, due_at=None, **more)

    def _settle_tasks(self) -> int:
        return sum(self._settle_task(task) for task in list(self.tasks.values()))

    def _settle_task(self, task: Task) -> bool:
        if task.state in ENDED:
            return False
        if task.deadline <= self.now:
            self._end(task, "expired", reason="deadline reached")
            return True
        over = task.lease_until is not None and task.lease_until <= self.now
        if over:
            self._given_up(task)
        return over

    def _settle_replies(self) -> int:
        return sum(self._settle_reply(reply) for reply in list(self.replies.values()))

    def _settle_reply(self, reply: Reply) -> bool:
        over = reply.lease_until is not None and reply.lease_until <= self.now
        if over:
            spent = reply.attempts >= reply.max_attempts
            self._settled(reply, "dead" if spent else "pending", None if spent else self.now)
        return over

    def _given_up(self, task: Task) -> str:
        if task.attempts >= task.max_attempts:
            return self._end(task, "failed", reason="attempts exhausted")
        return self._free(task, self.now)

    def _free(self, task: Task, due_at: float) -> str:
        self.tasks[task.task_id] = replace(task, state="pending", owner=None, lease_until=None, due_at=due_at)
        return "pending"

    def _settled(self, reply: Reply, state: str, due_at: float | None = None) -> str:
        self.replies[reply.reply_id] = replace(reply, state=state, owner=None, lease_until=None, due_at=due_at)
        return state

    def _end(self, task: Task, state: str, *, result: str | None = None, reason: str | None = None) -> str:
        over = replace(task, state=state, owner=None, lease_until=None, due_at=None, result=result, reason=reason)
        self.tasks[task.task_id] = over
        payload = reply_bytes(task.task_id, state, canonical(reason) if result is None else result)
        arrival = 1 + max((reply.arrival for reply in self.replies.values()), default=0)
        leased = (None, None, 0, 0, self.times.delivery_attempts)
        reply = Reply(reply_id(task.task_id), state, payload, "pending", *leased, self.now, arrival)
        self.replies[reply.reply_id] = reply
        return state


def _holds(row: Any, state: str, claim: Leased, now: float) -> bool:
    mine = (row.state, row.owner, row.fence) == (state, claim.owner, claim.fence)
    return mine and row.lease_until > now


def _answer(row: Task | Reply) -> Answer:
    identity = row.task_id if isinstance(row, Task) else row.reply_id
    return identity, row.owner, row.fence, row.attempts, row.lease_until
