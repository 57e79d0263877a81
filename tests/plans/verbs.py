"""Every verb once, with what it needs beforehand: up to its `yield` each function prepares, and then calls the verb."""

# ruff: noqa: D103 - each function has the name of what it calls

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from recovery import AuthContext, Envelope, Receiver, Settlement
from recovery.queue import Queue, Session
from recovery.repositories import OutboxRepository, TaskRepository
from recovery.transactions import READ
from recovery.verbs import verb

PRINCIPAL = "bench"
AUTH = AuthContext(PRINCIPAL)
RESULT = {"ok": True}
MANY = 100
LONG_SECONDS = 3600.0
"""A lease that ends in no test."""

_numbers = itertools.count(1)
_run = secrets.token_hex(4)


class Everything(Session):
    """A session that also has the verbs of a receiver and the looks of a worker."""

    accept = Receiver.accept
    has_work = verb(TaskRepository, TaskRepository.has_work, READ)
    has_reply = verb(OutboxRepository, OutboxRepository.has_work, READ)

    @classmethod
    def of(cls, queue: Queue) -> Everything:
        """The same for this queue's database."""
        return cls(queue.settings, queue._transactions.hold())


def message(queue: str = "default") -> Envelope:
    """A message that was never there before."""
    name = f"{_run}-{next(_numbers)}"
    return Envelope(name, PRINCIPAL, {"n": 1}, time.time() + LONG_SECONDS, queue=queue)


def messages(count: int, queue: str = "default") -> list[Envelope]:
    """Several of them."""
    return [message(queue) for _ in range(count)]


def claims(on: Everything, count: int = 1) -> list[Any]:
    """So many tasks that are held."""
    on.receive_all(messages(count), AUTH)
    held = on.claim_batch("worker", count)
    assert count == len(held)
    return held


def deliveries(on: Everything, count: int = 1) -> list[Any]:
    """So many replies that are held."""
    on.finish_batch([(claim, RESULT) for claim in claims(on, count)])
    held = on.claim_reply_batch("dispatcher", count)
    assert count == len(held)
    return held


def receive(on: Everything) -> Iterator[None]:
    one = message()
    yield
    assert not on.receive(one, AUTH).duplicate


def receive_duplicate(on: Everything) -> Iterator[None]:
    one = message()
    on.receive(one, AUTH)
    yield
    assert on.receive(one, AUTH).duplicate


def receive_all(on: Everything) -> Iterator[None]:
    several = messages(MANY)
    yield
    assert MANY == len(on.receive_all(several, AUTH))


def receive_all_duplicates(on: Everything) -> Iterator[None]:
    several = messages(MANY)
    on.receive_all(several, AUTH)
    yield
    assert all(ack.duplicate for ack in on.receive_all(several, AUTH))


def claim(on: Everything) -> Iterator[None]:
    on.receive(message(), AUTH)
    yield
    assert on.claim("worker") is not None


def claim_two_queues(on: Everything) -> Iterator[None]:
    on.receive(message(), AUTH)
    yield
    assert on.claim("worker", ("default", "later")) is not None


def claim_on_empty(on: Everything) -> Iterator[None]:
    yield
    assert on.claim("worker", ("nothing",)) is None


def claim_on_emptied(on: Everything) -> Iterator[None]:
    # A connection that has taken something before looks at the whole again before it says that there is nothing.
    on.receive(message("emptied"), AUTH)
    on.claim("worker", ("emptied",))
    yield
    assert on.claim("worker", ("emptied",)) is None


def claim_future(on: Everything) -> Iterator[None]:
    yield
    assert on.claim("worker", ("later",)) is None


def claim_batch(on: Everything) -> Iterator[None]:
    on.receive_all(messages(MANY), AUTH)
    yield
    assert MANY == len(on.claim_batch("worker", MANY))


def has_work(on: Everything) -> Iterator[None]:
    yield
    assert not on.has_work("worker", ("later",))


def finish(on: Everything) -> Iterator[None]:
    (held,) = claims(on)
    yield
    on.finish(held, RESULT)


def finish_again(on: Everything) -> Iterator[None]:
    (held,) = claims(on)
    on.finish(held, RESULT)
    yield
    on.finish(held, RESULT)


def finish_batch(on: Everything) -> Iterator[None]:
    held = claims(on, MANY)
    yield
    assert all(verdict.ok for verdict in on.finish_batch([(one, RESULT) for one in held]))


def finish_and_claim(on: Everything) -> Iterator[None]:
    (held,) = claims(on)
    on.receive(message(), AUTH)
    yield
    assert on.finish_and_claim(held, RESULT) is not None


def fail(on: Everything) -> Iterator[None]:
    (held,) = claims(on)
    yield
    assert on.fail(held, "not today") == "pending"


def fail_for_good(on: Everything) -> Iterator[None]:
    (held,) = claims(on)
    yield
    assert on.fail(held, "never", retryable=False) == "failed"


def release(on: Everything) -> Iterator[None]:
    (held,) = claims(on)
    yield
    assert on.release(held) == "pending"


def cancel(on: Everything) -> Iterator[None]:
    ack = on.receive(message(), AUTH)
    yield
    assert on.cancel(ack.task_id)


def renew(on: Everything) -> Iterator[None]:
    (held,) = claims(on)
    yield
    assert held.lease_until < on.renew(held).lease_until


def claim_reply(on: Everything) -> Iterator[None]:
    on.finish(claims(on)[0], RESULT)
    yield
    assert on.claim_reply("dispatcher") is not None


def claim_reply_batch(on: Everything) -> Iterator[None]:
    on.finish_batch([(one, RESULT) for one in claims(on, MANY)])
    yield
    assert MANY == len(on.claim_reply_batch("dispatcher", MANY))


def has_reply(on: Everything) -> Iterator[None]:
    on.finish(claims(on)[0], RESULT)
    yield
    assert on.has_reply("dispatcher")


def renew_reply(on: Everything) -> Iterator[None]:
    (held,) = deliveries(on)
    yield
    assert held.lease_until < on.renew_reply(held).lease_until


def settle(on: Everything) -> Iterator[None]:
    (held,) = deliveries(on)
    yield
    assert on.settle(held, delivered=True) == "sent"


def settle_batch(on: Everything) -> Iterator[None]:
    held = deliveries(on, MANY)
    yield
    assert all(verdict.ok for verdict in on.settle_batch([Settlement(one, delivered=True) for one in held]))


def accept(on: Everything) -> Iterator[None]:
    name = message().message_id
    yield
    assert not on.accept(name, "{}").duplicate


def accept_duplicate(on: Everything) -> Iterator[None]:
    name = message().message_id
    on.accept(name, "{}")
    yield
    assert on.accept(name, "{}").duplicate


_functions: tuple[Callable[[Everything], Iterator[None]], ...] = (
    receive,
    receive_duplicate,
    receive_all,
    receive_all_duplicates,
    claim,
    claim_two_queues,
    claim_on_empty,
    claim_on_emptied,
    claim_future,
    claim_batch,
    has_work,
    finish,
    finish_again,
    finish_batch,
    finish_and_claim,
    fail,
    fail_for_good,
    release,
    cancel,
    renew,
    claim_reply,
    claim_reply_batch,
    has_reply,
    renew_reply,
    settle,
    settle_batch,
    accept,
    accept_duplicate,
)
VERBS = {function.__name__: function for function in _functions}
