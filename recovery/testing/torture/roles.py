"""The five roles: who sends, works, delivers, receives and tidies up, each with the habits that make trouble."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import sqlalchemy as sa

from recovery.errors import CommitUnknown, Fenced, PayloadCollision, RecoveryError
from recovery.messages import Claim, Delivery
from recovery.testing.history import OK, in_folder, read_histories
from recovery.testing.recording import RecordedQueue, RecordedReceiver
from recovery.testing.torture import messages, wire
from recovery.testing.torture.actors import Life, Role
from recovery.testing.torture.plan import (
    CAST,
    DISPATCHER,
    LEASE_SECONDS,
    MAINTENANCE,
    OWN_EFFECTS,
    QUEUES,
    RECEIVER,
    SENDER,
    WORKER,
)

IDLE_SECONDS: Final = 0.08
SEND_EVERY_SECONDS: Final = 0.07
OPEN_MAX: Final = 300
"""Senders hold back above so many open tasks, so that a drain stays short."""
ACK_LOST: Final = 0.06
OVERSLEPT_SECONDS: Final = LEASE_SECONDS * 1.1
RECENT: Final = 60


class Sender:
    """Sends its messages in order; whatever was not acknowledged is sent again, also what former lives sent."""

    def __init__(self, life: Life, queue: RecordedQueue) -> None:
        self._life = life
        self._queue = queue
        self._actor = life.part.actor
        self._next, self._left = _left_by_former_lives(life)

    def step(self) -> bool:
        life = self._life
        if not self._left:
            if life.plan.tally.calm:
                return False
            if life.plan.tally.total("open") > OPEN_MAX:
                time.sleep(SEND_EVERY_SECONDS)
                return True
            self._left.append(messages.message_id(self._actor, self._next))
            life.plan.tally.put(life.part.row, "number", self._next)
            self._next += 1
            time.sleep(life.chance.uniform(0.0, 2 * SEND_EVERY_SECONDS))
        self._send(self._left[0])
        self._left.pop(0)
        return True

    def _send(self, name: str) -> None:
        envelope, share = messages.envelope(self._life.plan, name), self._life.chance.random()
        self._queue.receive(envelope, messages.AUTH)
        if share < 0.08:  # noqa: PLR2004 - the shares of a habit
            self._queue.receive(envelope, messages.AUTH)
        elif share < 0.12:  # noqa: PLR2004
            with contextlib.suppress(PayloadCollision):
                self._queue.receive(messages.collision(self._life.plan, name), messages.AUTH)


def _left_by_former_lives(life: Life) -> tuple[int, list[str]]:
    """The number of the next new message, and the names of those that were sent and not acknowledged."""
    own = [path for path in in_folder(life.plan.histories) if path.name.startswith(f"{life.part.actor}.")]
    sent = [one for one in read_histories(own) if one.name == "receive"]
    names = dict.fromkeys(one.asked["message_id"] for one in sent)
    heard = {one.asked["message_id"] for one in sent if one.event == OK}
    following = max((messages.number_of(name) for name in names), default=0) + 1
    return following, [name for name in names if name not in heard]


class Worker:
    """Claims, works a little, and ends what it claimed in every way there is; now and then much too late."""

    def __init__(self, life: Life, queue: RecordedQueue) -> None:
        self._life = life
        self._queue = queue

    def step(self) -> bool:
        limit = self._life.chance.choice((1, 1, 1, 3))
        claims = self._queue.claim(self._life.part.life, limit, QUEUES)
        if not claims:
            time.sleep(IDLE_SECONDS)
        for claim in claims:
            with contextlib.suppress(Fenced):
                self._work(claim)
        return True

    def _work(self, claim: Claim) -> None:
        chance = self._life.chance
        time.sleep(chance.uniform(0.0, 0.02))
        share = chance.random()
        if share < 0.03 and not self._life.plan.tally.calm:  # noqa: PLR2004 - the shares of its habits
            time.sleep(OVERSLEPT_SECONDS)
        elif share < 0.15:  # noqa: PLR2004
            claim = self._queue.renew(claim)
        self._end(claim, chance.random())

    def _end(self, claim: Claim, share: float) -> None:
        shares: tuple[tuple[float, Callable[[Claim], object]], ...] = (
            (0.10, lambda one: self._queue.fail(one, "not today")),
            (0.12, lambda one: self._queue.fail(one, "never", retryable=False)),
            (0.18, self._queue.release),
            (0.20, lambda _: None),  # Forgotten: the lease gives it back.
            (0.35, self._finish_and_go_on),
            (1.01, self._finish),
        )
        next(do for bound, do in shares if share < bound)(claim)

    def _finish(self, claim: Claim) -> None:
        result = {"task": claim.task_id, "fence": claim.fence}
        again = self._life.chance.random() < 0.05  # noqa: PLR2004 - as above
        try:
            self._queue.finish(claim, result)
        except CommitUnknown:
            again = True  # As a worker does that did not hear.
        if again:
            self._queue.finish(claim, result)

    def _finish_and_go_on(self, claim: Claim) -> None:
        following = self._queue.finish_and_claim(claim, ["done", claim.fence])
        if following is not None:
            self._finish(following)


class Dispatcher:
    """Claims replies and sends them, sometimes twice, sometimes after its lease."""

    def __init__(self, life: Life, queue: RecordedQueue) -> None:
        self._life = life
        self._queue = queue

    def step(self) -> bool:
        held = self._queue.claim_reply(self._life.part.life, self._life.chance.choice((1, 1, 4)))
        if not held:
            time.sleep(IDLE_SECONDS)
        for delivery in held:
            with contextlib.suppress(Fenced):
                self._deliver(delivery)
        return True

    def _deliver(self, delivery: Delivery) -> None:
        share = self._life.chance.random()
        if share < 0.1:  # noqa: PLR2004 - the shares of its habits
            delivery = self._queue.renew_reply(delivery)
        try:
            wire.send(self._life.plan.receiver_port, delivery.reply_id, delivery.payload)
            if share > 0.95:  # noqa: PLR2004
                wire.send(self._life.plan.receiver_port, delivery.reply_id, delivery.payload)
        except (OSError, wire.Refused, ValueError) as error:
            self._queue.settle(delivery, delivered=False, error=type(error).__name__)
            return
        self._queue.settle(delivery, delivered=True)


class ReceiverRole:
    """Stores what is sent, applies an effect of its own beside the receipt, and loses some of its answers."""

    def __init__(self, life: Life, receiver: RecordedReceiver) -> None:
        self._life = life
        self._receiver = receiver

    def step(self) -> bool:
        ready, _, _ = select.select([self._life.listening], [], [], 0.2)
        if ready:
            with contextlib.suppress(OSError), self._taken() as line:
                line.settimeout(wire.ANSWER_SECONDS)
                self._answer(line, wire.read(line))
        return True

    def _taken(self) -> socket.socket:
        # The other receiver may have been quicker; the socket does not block.
        return self._life.listening.accept()[0]

    def _answer(self, line: socket.socket, asked: dict[str, Any]) -> None:
        life = self._life
        try:
            receipt = self._receiver.accept(asked["reply_id"], asked["payload"], apply_effect)
        except RecoveryError as error:
            wire.write(line, {"error": type(error).__name__})
            return
        if not life.plan.tally.calm and life.chance.random() < ACK_LOST:
            life.plan.tally.add(life.part.row, "cuts")
            return
        wire.write(line, {"duplicate": receipt.duplicate})


def apply_effect(connection: sa.Connection, reply_id: str, _payload: str) -> None:
    """What the receiver does because of a reply: a row in a table that does not refuse a second one."""
    connection.execute(sa.text(f"INSERT INTO {OWN_EFFECTS} (reply_id) VALUES (:reply_id)"), {"reply_id": reply_id})  # noqa: S608


class Maintenance:
    """Reconciles, counts what is open, and cancels a message now and then."""

    def __init__(self, life: Life, queue: RecordedQueue) -> None:
        self._life = life
        self._queue = queue

    def step(self) -> bool:
        life = self._life
        self._queue.reconcile()
        life.plan.tally.put(life.part.row, "open", sum(self._queue.queue.counts().open.values()))
        if not life.plan.tally.calm:
            self._cancel()
        time.sleep(life.chance.uniform(0.05, 0.4))
        return True

    def _cancel(self) -> None:
        row = self._life.chance.randrange(CAST[SENDER])  # Senders come first in the tally.
        newest = self._life.plan.tally.get(row, "number")
        if newest:
            number = self._life.chance.randint(max(1, newest - RECENT), newest)
            self._queue.cancel(messages.task_of(f"{SENDER}-{row + 1}", number))


@contextlib.contextmanager
def _with_queue(life: Life, make: Callable[[Life, RecordedQueue], Role]) -> Iterator[Role]:
    with life.queue() as queue:
        yield make(life, queue)


@contextlib.contextmanager
def _with_receiver(life: Life) -> Iterator[Role]:
    with life.receiver() as receiver:
        yield ReceiverRole(life, receiver)


ROLES: Final[dict[str, Callable[[Life], AbstractContextManager[Role]]]] = {
    SENDER: lambda life: _with_queue(life, Sender),
    WORKER: lambda life: _with_queue(life, Worker),
    DISPATCHER: lambda life: _with_queue(life, Dispatcher),
    RECEIVER: _with_receiver,
    MAINTENANCE: lambda life: _with_queue(life, Maintenance),
}
"""What each role plays with."""
