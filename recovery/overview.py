"""What is going on, for reading only: the four facts in numbers, and one task's story in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from recovery import clock, states
from recovery.accepting import is_text_key
from recovery.backend import Backend, param, rows
from recovery.messages import Reply, Task, Transition
from recovery.repositories.base import Repository
from recovery.repositories.journal import JournalRepository
from recovery.schema import Tables

ENDINGS: Final[Mapping[str, str]] = {
    states.DONE: "it was done, and its result is stored",
    states.FAILED: "it failed",
    states.CANCELLED: "it was cancelled",
    states.EXPIRED: "its deadline passed before it was done",
    states.HOP_LIMIT: "it had come through too many agents to be worked on",
}

_NOT_PRINTABLE: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]")
"""What would let a text from outside write lines of its own, move the cursor, or turn the direction of writing."""


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
    work: str = field(repr=False)
    ending: str = field(repr=False)
    delivery: str = field(repr=False)
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
        return "\n".join(_NOT_PRINTABLE.sub(_escape, line) for line in lines)


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
        picture = self._picture(task_id)
        if picture is None:
            return None
        task, reply, now, last = picture
        steps = JournalRepository(self.connection, self.settings).of(task_id)
        return Explanation(
            task_id=task_id,
            as_of=now,
            received=f"accepted from {task.principal!r} as message {task.message_id!r}; stored once",
            work=_work(task, now),
            ending=_ending(task),
            delivery=_delivery(reply, now),
            next=_next(task, reply, now),
            task=task,
            reply=reply,
            timeline=tuple(step for step in steps if step.seq <= last),
        )

    def _picture(self, task_id: str) -> tuple[Task, Reply | None, float, int] | None:
        """The task, its reply, the time and the number of the last transition, as they stand at one moment."""
        # One statement, since at READ COMMITTED the next one sees what others committed meanwhile. A task's transitions
        # are numbered under its lock: up to the last one that was seen here, they are those that led to what was seen.
        if not is_text_key(task_id):
            return None
        arguments = (self.tables, self.hand, self.backend)
        found = rows(self.connection, _picture, arguments, {"p_task_id": task_id} | self.hand_time())
        if not found:
            return None
        now, seq, *values = found[0]
        of_task, of_reply = _columns(self.tables)
        split = len(of_task)
        reply = None if values[split] is None else Reply(*_read(of_reply, values[split:]))
        return Task(*_read(of_task, values[:split])), reply, float(now), seq


def _columns(tables: Tables) -> tuple[list[sa.Column[Any]], list[sa.Column[Any]]]:
    """What a task and its reply are made of, in the order of their fields."""
    of_task = [(tables.tasks if name in tables.tasks.c else tables.inbox).c[name] for name in Task.__slots__]
    return of_task, [tables.outbox.c[name] for name in Reply.__slots__]


def _picture(tables: Tables, hand: clock.Hand, at: Backend) -> sa.Select[Any]:
    """The time, the number of the last transition, a task, and its reply, whose columns are called `reply_…`."""
    inbox, tasks, outbox, journal = tables.inbox, tables.tasks, tables.outbox, tables.journal
    of_task, of_reply = _columns(tables)
    wanted = param("task_id", sa.Text())
    last = sa.select(sa.func.coalesce(sa.func.max(journal.c.seq), 0)).where(journal.c.task_id == wanted)
    named = [column.label(f"reply_{column.name}") for column in of_reply]
    now = clock.expression(at, hand).label("now")
    return (
        sa.select(now, last.scalar_subquery().label("last"), *of_task, *named)
        .join_from(tasks, inbox, tasks.c.task_id == inbox.c.task_id)
        .outerjoin(outbox, outbox.c.task_id == tasks.c.task_id)
        .where(tasks.c.task_id == wanted)
    )


def _read(columns: Sequence[sa.Column[Any]], values: Sequence[Any]) -> list[Any]:
    # SQLite may answer a whole number of seconds as an int.
    return [
        float(value) if isinstance(column.type, sa.Double) and value is not None else value
        for column, value in zip(columns, values, strict=True)
    ]


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _work(task: Task, now: float) -> str:
    tries = _tries(task, None if task.last_error == task.reason else task.last_error)
    if task.state == states.RUNNING:
        return f"{task.owner!r} holds it under fence {task.fence}, {_lease(task, now)}; {tries}"
    if task.state == states.PENDING and task.attempts == 0:
        return "nobody has claimed it yet"
    if task.attempts == 0:
        return "it was never claimed"
    return f"nobody holds it now; {task.last_owner!r} was the last, under fence {task.fence}; {tries}"


def _tries(row: Task | Reply, last_error: str | None) -> str:
    said = f" ({last_error})" if last_error else ""
    return f"{row.attempts} of {row.max_attempts} attempts used{said}"


def _lease(row: Task | Reply, now: float) -> str:
    if _is_held(row, now):
        return f"for {(row.lease_until or now) - now:.1f} s more"
    return f"but the lease ended {now - (row.lease_until or now):.1f} s ago"


def _is_held(row: Task | Reply, now: float) -> bool:
    return row.lease_until is not None and row.lease_until > now


def _ending(task: Task) -> str:
    if task.state in states.TASK_OPEN:
        return "it has not ended"
    words = ENDINGS[task.state]
    return words if task.reason is None else f"{words}: {task.reason}"


def _delivery(reply: Reply | None, now: float) -> str:
    if reply is None:
        return "there is no reply before the task ends"
    tries = _tries(reply, reply.last_error)
    return {
        states.PENDING: f"the reply waits to be sent; {tries}",
        states.SENDING: f"{reply.owner!r} holds the reply under fence {reply.fence}, {_lease(reply, now)}; {tries}",
        states.SENT: "the receiver confirmed that it stored the reply",
        states.DEAD: f"{_dead(reply)}; {tries}",
    }[reply.state]


def _dead(reply: Reply) -> str:
    if _was_refused(reply):
        return "the receiver refused the reply for good"
    return "no trusted confirmation within the budget, the receiver may have it all the same"


def _was_refused(reply: Reply) -> bool:
    # Nothing else is dead before its budget is spent.
    return reply.attempts < reply.max_attempts


def _next(task: Task, reply: Reply | None, now: float) -> str:
    if task.state in states.TASK_OPEN:
        return _next_of_task(task, now)
    if reply is None:
        return "nothing: the reply was removed"
    if reply.state == states.PENDING:
        wait = reply.available_at - now
        return "the next dispatcher sends the reply" if wait <= 0 else f"a dispatcher sends the reply in {wait:.1f} s"
    if reply.state == states.SENDING:
        return _next_of_delivery(reply, now)
    if reply.state == states.DEAD and _was_refused(reply):
        return "somebody looks at why the receiver refused it, and then replays it or closes it"
    if reply.state == states.DEAD:
        return "somebody asks the receiver whether it has the reply, and then replays it or closes it"
    return "nothing: all four stages are over"


def _next_of_task(task: Task, now: float) -> str:
    if task.deadline <= now:
        return "the next claim or reconcile ends it as expired, because its deadline passed"
    if task.state == states.PENDING:
        wait = task.available_at - now
        return "the next worker claims it" if wait <= 0 else f"a worker may claim it in {wait:.1f} s"
    if _is_held(task, now):
        return f"its worker finishes, fails, renews or releases it; {_without_worker(task)}"
    if task.attempts >= task.max_attempts:
        return "the next claim or reconcile ends it as failed: the lease is over and the attempts are spent"
    return "the next claim takes it back, because its lease is over"


def _without_worker(task: Task) -> str:
    if task.lease_until is not None and task.deadline <= task.lease_until:
        return "if its deadline passes first, it ends as expired"
    if task.attempts >= task.max_attempts:
        return "if the lease ends first, it ends as failed, because the attempts are spent"
    return "if the lease ends first, the work is given to another"


def _next_of_delivery(reply: Reply, now: float) -> str:
    spent = reply.attempts >= reply.max_attempts
    if _is_held(reply, now):
        then = "dead, because the attempts are spent" if spent else "sent again"
        return f"its dispatcher stores the outcome; if the lease ends first, the reply is {then}"
    if spent:
        return "the next dispatcher or reconcile gives it up as dead: the lease is over and the attempts are spent"
    return "the next dispatcher takes it back, because its lease is over"


def _line(step: Transition, start: float) -> str:
    by = f" by {step.owner!r}" if step.owner else ""
    move = f"{step.subject} {step.from_state} -> {step.to_state}"
    return f"+{max(step.at - start, 0.0):8.3f} s  {move:<28} fence {step.fence} attempt {step.attempt}{by}: {step.why}"
