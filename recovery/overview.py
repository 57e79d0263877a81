"""What is going on, for reading only: the four facts in numbers, and one task's story in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from recovery import states
from recovery.messages import Reply, Task, Transition
from recovery.repositories.base import Repository
from recovery.repositories.journal import JournalRepository
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.tasks import TaskRepository

ENDINGS: Final[Mapping[str, str]] = {
    states.DONE: "it was done, and its result is stored",
    states.FAILED: "it failed",
    states.CANCELLED: "it was cancelled",
    states.EXPIRED: "its deadline passed before it was done",
    states.HOP_LIMIT: "it had come through too many agents to be accepted",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """The four facts: messages received, tasks open and ended by state, replies by how their delivery stands."""

    received: int
    open: Mapping[str, int]
    ended: Mapping[str, int]
    delivery: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One task's four stages in words, what will happen next, and every transition so far.

    `as_of` is the reading of the queue's clock, in seconds since the epoch, that the words were made for.
    """

    task_id: str
    as_of: float
    received: str
    work: str
    ending: str
    delivery: str
    next: str
    task: Task
    reply: Reply | None
    timeline: tuple[Transition, ...]

    def __str__(self) -> str:
        stages = (
            ("received", self.received),
            ("work", self.work),
            ("ending", self.ending),
            ("delivery", self.delivery),
            ("next", self.next),
        )
        lines = [f"task {self.task_id}"] + [f"  {name:<9} {words}" for name, words in stages]
        lines += ["  timeline"] + [f"    {_line(step, self.task.received_at)}" for step in self.timeline]
        return "\n".join(lines)


class Overview(Repository):
    """Reads across the rooms. It writes nothing and locks nothing."""

    def counts(self) -> Counts:
        """Count everything once, in one statement, so that the numbers fit each other."""
        found = {(row.what, row.state): row.rows for row in self.connection.execute(self._count())}
        tasks = {state: found.get(("task", state), 0) for state in states.TASK_STATES}
        return Counts(
            received=found.get(("message", ""), 0),
            open={state: tasks[state] for state in states.TASK_OPEN},
            ended={state: tasks[state] for state in states.TASK_ENDED},
            delivery={state: found.get(("reply", state), 0) for state in states.REPLY_STATES},
        )

    def _count(self) -> sa.CompoundSelect[tuple[str, str, int]]:
        tasks, outbox, inbox = self.tables.tasks, self.tables.outbox, self.tables.inbox
        number, text = sa.func.count().label("rows"), sa.Text()
        what = [sa.literal_column(f"'{word}'", text).label("what") for word in ("message", "task", "reply")]
        nothing = sa.literal_column("''", text).label("state")
        return sa.union_all(
            sa.select(what[0], nothing, number).select_from(inbox),
            sa.select(what[1], tasks.c.state, number).group_by(tasks.c.state),
            sa.select(what[2], outbox.c.state, number).group_by(outbox.c.state),
        )

    def explain(self, task_id: str) -> Explanation | None:
        """Tell a task's story, or None for an unknown id."""
        task = TaskRepository(self.connection, self.settings).task(task_id)
        if task is None:
            return None
        replies = OutboxRepository(self.connection, self.settings).replies(task_id)
        reply = replies[0] if replies else None
        now = self.now()
        return Explanation(
            task_id=task_id,
            as_of=now,
            received=f"accepted from {task.principal!r} as message {task.message_id!r}; stored once",
            work=_work(task, now),
            ending=_ending(task),
            delivery=_delivery(reply),
            next=_next(task, reply, now),
            task=task,
            reply=reply,
            timeline=tuple(JournalRepository(self.connection, self.settings).of(task_id)),
        )


def _work(task: Task, now: float) -> str:
    tries = f"{task.attempts} of {task.max_attempts} attempts used"
    if task.state == states.RUNNING:
        left = (task.lease_until or now) - now
        lease = f"for {left:.1f} s more" if left > 0 else f"but the lease ended {-left:.1f} s ago"
        return f"{task.owner!r} holds it under fence {task.fence}, {lease}; {tries}"
    if task.state == states.PENDING and task.attempts == 0:
        return "nobody has claimed it yet"
    if task.attempts == 0:
        return "it was never claimed"
    return f"nobody holds it now; {task.last_owner!r} was the last, under fence {task.fence}; {tries}"


def _ending(task: Task) -> str:
    if task.state in states.TASK_OPEN:
        return "it has not ended"
    words = ENDINGS[task.state]
    return words if task.reason is None else f"{words}: {task.reason}"


def _delivery(reply: Reply | None) -> str:
    if reply is None:
        return "there is no reply before the task ends"
    tries = f"{reply.attempts} of {reply.max_attempts} attempts used"
    said = f" ({reply.last_error})" if reply.last_error else ""
    return {
        states.PENDING: f"the reply waits to be sent; {tries}{said}",
        states.SENDING: f"{reply.owner!r} is sending the reply under fence {reply.fence}; {tries}{said}",
        states.SENT: "the receiver confirmed that it stored the reply",
        states.DEAD: f"no trusted confirmation within the budget, the receiver may have it all the same; {tries}{said}",
    }[reply.state]


def _next(task: Task, reply: Reply | None, now: float) -> str:
    if task.state in states.TASK_OPEN:
        return _next_of_task(task, now)
    if reply is None:
        return "nothing: the reply was removed"
    if reply.state == states.PENDING:
        wait = reply.available_at - now
        return "the next dispatcher sends the reply" if wait <= 0 else f"a dispatcher sends the reply in {wait:.1f} s"
    if reply.state == states.SENDING:
        return "its dispatcher stores the outcome; if its lease ends first, the reply is sent again or given up"
    if reply.state == states.DEAD:
        return "somebody asks the receiver whether it has the reply, and then replays it or closes it"
    return "nothing: all four stages are over"


def _next_of_task(task: Task, now: float) -> str:
    if task.deadline <= now:
        return "the next claim or reconcile ends it as expired, because its deadline passed"
    if task.state == states.PENDING:
        wait = task.available_at - now
        return "the next worker claims it" if wait <= 0 else f"a worker may claim it in {wait:.1f} s"
    if (task.lease_until or now) > now:
        return "its worker finishes, fails or renews; if the lease ends first, the work is given to another"
    if task.attempts >= task.max_attempts:
        return "the next claim or reconcile ends it as failed: the lease is over and the attempts are spent"
    return "the next claim takes it back, because its lease is over"


def _line(step: Transition, start: float) -> str:
    by = f" by {step.owner!r}" if step.owner else ""
    move = f"{step.subject} {step.from_state} -> {step.to_state}"
    return f"+{max(step.at - start, 0.0):8.3f} s  {move:<28} fence {step.fence} attempt {step.attempt}{by}: {step.why}"
