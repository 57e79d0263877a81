"""States of a world, and the product taking one step from any of them."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from recovery import Ack, Claim, CommitUnknown, Delivery, ManualClock, Queue, Receipt, Receiver
from recovery.messages import Reconciled
from tests.worlds import contents as stored
from tests.worlds.contents import ENDED, Contents, Row
from tests.worlds.memory import Died, Memory
from tests.worlds.steps import SENDER, START, TICK_SECONDS, VERBS, Ends, Held, Step, World

DIED: Final = Died.__name__
DOUBT: Final = CommitUnknown.__name__
Key: TypeAlias = bytes


class Clock(ManualClock):
    """A clock that is put back with the state that it belongs to."""

    def put(self, now: float) -> None:
        """Be at `now`, in seconds since the epoch."""
        self._now = now


@dataclass(frozen=True, slots=True)
class State:
    """Both databases as bytes and as rows, the time, and what each actor holds.

    Whoever lost an answer knows as much as before, and may ask again, as it may do anything at any time: an operation
    that is in doubt needs no place of its own.
    """

    queue: bytes
    receiver: bytes
    contents: Contents
    now: float
    held: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """What a step came to: its answer in plain words, the state after it, and how many commits of it wrote."""

    step: Step
    answer: Any
    after: State
    writes: int


class Machine:
    """The product over two databases in memory, put into any state. `file` is a migrated database to begin from."""

    def __init__(self, world: World, file: Path) -> None:
        self.world = world
        self.clock = Clock(START)
        self._queue, self._receiver = Memory(file), Memory(file)
        self._receiver.driver.execute("CREATE TABLE applied (reply_id TEXT NOT NULL)")
        times = world.times
        queue = Queue(
            self._queue.engine,
            allowed_sources={SENDER},
            clock=self.clock,
            lease_seconds=times.lease,
            backoff=times.backoff,
            delivery_lease_seconds=times.delivery_lease,
            delivery_backoff=times.delivery_backoff,
            delivery_attempts=times.delivery_attempts,
        )
        receiver = Receiver(self._receiver.engine, clock=self.clock)
        for end, memory in ((queue, self._queue), (receiver, self._receiver)):
            memory.move_in()
            end._transactions._sleep = lambda _seconds: None
        self.ends = Ends(queue.session(), receiver)

    def close(self) -> None:
        """Give the databases back."""
        for part in (*self.ends, self._queue, self._receiver):
            part.close()

    def start(self) -> State:
        """Nothing is stored, and nobody holds anything."""
        return self._state(None, START, ())

    def tick(self, state: State, seconds: float) -> State:
        """The same, a little later."""
        return State(state.queue, state.receiver, state.contents, state.now + seconds, state.held)

    def forget(self, state: State, actor: str) -> State:
        """The same after an actor died in the middle of nothing."""
        return State(state.queue, state.receiver, state.contents, state.now, _without(state.held, actor))

    def take(self, state: State, step: Step) -> Taken:
        """Put the databases into a state, do a step there, and look."""
        self._queue.restore(state.queue)
        self._receiver.restore(state.receiver)
        self.clock.put(state.now)
        assert self.ends.queue.quiet is not None
        self.ends.queue.quiet.clear()
        ours, other = self._memories(step)
        ours.arm(step.fate)
        other.arm(None)
        raw = self._done(step)
        answer = said(raw)
        held = _held(state.held, step, raw)
        after = self._state(state, state.now, held) if ours.is_changed or other.is_changed else _with(state, held)
        return Taken(step, answer, after, ours.writes)

    def _memories(self, step: Step) -> tuple[Memory, Memory]:
        both = (self._queue, self._receiver)
        return both[::-1] if step.verb.startswith("send") else both

    def _done(self, step: Step) -> Any:
        try:
            return VERBS[step.verb].product(self.ends, step)
        except (Died, Exception) as error:  # noqa: BLE001 - whatever it is, it is the answer
            return error

    def _state(self, before: State | None, now: float, held: tuple[Held, ...]) -> State:
        """What is there now. A database that was not touched is the one from before, and not read again."""
        queue, receiver = self._queue, self._receiver
        if before is None or queue.is_changed:
            mine = queue.save(), stored.read_queue(_select(queue.driver))
        else:
            mine = before.queue, before.contents.queue
        if before is None or receiver.is_changed:
            theirs = receiver.save(), stored.read_receiver(_select(receiver.driver))
        else:
            theirs = before.receiver, before.contents.receiver
        return State(mine[0], theirs[0], Contents(mine[1], theirs[1]), now, held)


def _with(state: State, held: tuple[Held, ...]) -> State:
    return State(state.queue, state.receiver, state.contents, state.now, held)


def _select(driver: sqlite3.Connection) -> stored.Select:
    def select(statement: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        cursor = driver.execute(statement)
        return tuple(column[0] for column in cursor.description), cursor.fetchall()

    return select


def said(answer: Any) -> Any:
    """An answer of the product in plain words."""
    if isinstance(answer, Claim | Delivery):
        identity = answer.task_id if isinstance(answer, Claim) else answer.reply_id
        return (identity, answer.owner, answer.fence, answer.attempt, answer.lease_until)
    if isinstance(answer, Ack | Receipt):
        return answer.duplicate
    if isinstance(answer, Reconciled):
        return (answer.tasks, answer.replies, *answer.unsettled)
    if isinstance(answer, BaseException):
        return type(answer).__name__
    return answer


def _held(held: tuple[Held, ...], step: Step, raw: Any) -> tuple[Held, ...]:
    """What the actors hold after a step: what was answered comes to it, and whoever died loses everything."""
    if isinstance(raw, Died):
        # What dies while a reply is sent is the receiver's process, and the dispatcher lives.
        return held if step.verb.startswith("send") else _without(held, step.actor)
    if isinstance(raw, Claim | Delivery):
        new = Held(step.actor, raw)
        return (*(one for one in held if _name(one) != _name(new)), new)
    if isinstance(raw, Receipt) and step.verb == "send":
        return tuple(one._replace(confirmed=True) if one is step.held else one for one in held)
    return held


def _without(held: tuple[Held, ...], actor: str) -> tuple[Held, ...]:
    return tuple(one for one in held if one.actor != actor)


def _name(held: Held) -> tuple[str, str, int]:
    return held.actor, held.identity, held.thing.fence


def key(world: World, state: State) -> Key:
    """What tells states apart: rows and hands, with times from now on, and the workers' names by what they hold.

    Left out is what no verb reads: the journal, the times at which things ended, texts of errors. What is past by a
    tick is past, however long. Two workers that changed their names are the same two.
    """
    first, *_ = sorted(_named(state, names) for names in _renamed(world.workers))
    return hashlib.blake2b(first.encode(), digest_size=16).digest()


def _renamed(workers: tuple[str, ...]) -> Iterator[dict[str, str]]:
    yield {}
    if len(workers) > 1:
        first, second, *_ = workers
        yield {first: second, second: first}


def _named(state: State, names: dict[str, str]) -> str:
    queue, receiver = state.contents.queue, state.contents.receiver
    tasks = [_task(row, state.now, names) for row in queue.tasks]
    replies = [_reply(row, state.now) for row in queue.outbox]
    held = sorted((names.get(one.actor, one.actor), one.identity, one.thing.fence, one.confirmed) for one in state.held)
    waiting = (_order(queue.tasks), _order(queue.outbox))
    effects = [row.reply_id for row in receiver.applied]
    return repr((tasks, replies, waiting, [row.reply_id for row in receiver.receipts], effects, held))


def _task(row: Row, now: float, names: dict[str, str]) -> tuple[Any, ...]:
    mine = (row.task_id, row.state, row.fence, row.attempts)
    if row.state in ENDED:
        return (*mine, names.get(row.last_owner, row.last_owner), row.result, row.reason)
    due_at = _left(row.available_at, now) if row.state == "pending" else None
    return (*mine, names.get(row.owner, row.owner), _left(row.lease_until, now), _left(row.deadline, now), due_at)


def _reply(row: Row, now: float) -> tuple[Any, ...]:
    due_at = _left(row.available_at, now) if row.state == "pending" else None
    return (row.reply_id, row.state, row.fence, row.attempts, row.owner, _left(row.lease_until, now), due_at)


def _left(until: float | None, now: float) -> float | None:
    return None if until is None else max(until - now, -TICK_SECONDS)


def _order(rows: tuple[Row, ...]) -> list[str]:
    """Who waits before whom."""
    waiting = [row for row in rows if row.state == "pending"]
    return [row.task_id for row in sorted(waiting, key=lambda row: (row.available_at, row.arrival))]
