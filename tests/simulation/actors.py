"""Everybody in a simulation. Each is a generator; what it knows dies with it, and it begins again with nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from recovery import Ack, Claim, CommitUnknown, Delivery, Envelope, Receipt
from tests.simulation.scheduling import TICK_SECONDS, Life, Wait
from tests.simulation.stage import AUTH, LEASE_SECONDS, Stage
from tests.worlds.contents import task_id


class Letter(NamedTuple):
    """What goes over the network, with the name of whoever wants an answer."""

    sender: str
    content: Any


GATE, RECEIVER = "gate", "receiver"
PATIENCE_SECONDS = 3.0
FOREVER_SECONDS = 1e6


def sender(stage: Stage, name: str, envelopes: list[Envelope]) -> Life:
    """Sends each message until it has an ACK for it, and now and then once more. Knows nothing of what it once had."""
    for envelope in envelopes:
        identity = task_id(envelope.sender, envelope.message_id)
        acknowledged = False
        while not acknowledged:
            stage.scheduler.send(GATE, Letter(name, envelope))
            letter = yield Wait(PATIENCE_SECONDS, for_mail=True)
            acknowledged = letter is not None and letter.content.task_id == identity
        if stage.random.random() < 0.3:
            stage.scheduler.send(GATE, Letter(name, envelope))
        stage.acknowledged.append(envelope)
        yield Wait(TICK_SECONDS * stage.random.randint(0, 6))


def liar(stage: Stage) -> Life:
    """Sends other content under the id of a message that is stored."""
    while True:
        yield Wait(TICK_SECONDS * stage.random.randint(8, 24))
        if stage.acknowledged:
            true = stage.random.choice(stage.acknowledged)
            stage.scheduler.send(GATE, Letter("liar", replace(true, payload={"lie": True})))


def gate(stage: Stage) -> Life:
    """Receives messages, and sends an ACK once one is stored."""
    while True:
        letter = yield Wait(FOREVER_SECONDS, for_mail=True)
        if letter is None:
            continue
        envelope = letter.content
        verb = f"receive {envelope.message_id}{' (a lie)' if 'lie' in envelope.payload else ''}"
        ack = stage.call(GATE, verb, "", partial(stage.queue.receive, envelope, AUTH))
        if isinstance(ack, Ack):
            stage.scheduler.send(letter.sender, Letter(GATE, ack))


def worker(stage: Stage, name: str) -> Life:
    """Claims, works for a while, sometimes for too long, and ends its work in one way or another."""
    random = stage.random
    old: list[Claim] = []
    claim: Any = None
    while True:
        if not isinstance(claim, Claim):
            claim = stage.call(name, "claim", "", partial(stage.queue.claim, name))
        if not isinstance(claim, Claim):
            yield Wait(TICK_SECONDS * random.randint(1, 4))
            continue
        old.append(claim)
        yield Wait(TICK_SECONDS * random.choice((0, 1, 3, 7, 8, 9)))
        if random.random() < 0.25:
            _done(stage, name, "renew", claim, stage.queue.renew)
            yield Wait(random.choice((TICK_SECONDS, LEASE_SECONDS)))
        if random.random() < 0.2:
            _done(stage, name, *_way(stage, random.choice(old)))
        claim = _done(stage, name, *_way(stage, claim))


Do = Callable[[Any], Any]


def _way(stage: Stage, claim: Claim) -> tuple[str, Claim, Do]:
    """One way to end work on a claim."""
    queue, result = stage.queue, stage.random.choice(("x", "y"))
    ways: tuple[tuple[str, Do], ...] = (
        (f"finish {result}", lambda held: queue.finish(held, result)),
        (f"finish {result}", lambda held: queue.finish(held, result)),
        (f"finish {result} and claim", lambda held: queue.finish_and_claim(held, result)),
        ("fail", lambda held: queue.fail(held, "boom")),
        ("give up", lambda held: queue.fail(held, "bad", retryable=False)),
        ("release", queue.release),
    )
    verb, do = stage.random.choice(ways)
    return verb, claim, do


def _done(stage: Stage, name: str, verb: str, claim: Claim, do: Do) -> Any:
    """Do it; where the answer is lost, ask again once, as a worker does that lives."""
    answer = stage.call(name, verb, claim, partial(do, claim))
    if isinstance(answer, CommitUnknown):
        answer = stage.call(name, verb, claim, partial(do, claim))
    return answer


def dispatcher(stage: Stage, name: str) -> Life:
    """Sends replies over the network, and settles them by the receipt, or by its absence."""
    while True:
        held = stage.call(name, "claim reply", "", partial(stage.queue.claim_reply, name))
        if not isinstance(held, Delivery):
            yield Wait(TICK_SECONDS * stage.random.randint(1, 4))
            continue
        stage.scheduler.send(RECEIVER, Letter(name, held))
        letter = yield Wait(PATIENCE_SECONDS, for_mail=True)
        if stage.random.random() < 0.1:
            stage.call(name, "renew reply", held, partial(stage.queue.renew_reply, held))
        if stage.random.random() < 0.1:
            yield Wait(LEASE_SECONDS)
        confirmed = letter is not None and letter.content.reply_id == held.reply_id
        error = None if confirmed else "no answer"
        verb = "settle delivered" if confirmed else "settle lost"
        stage.call(name, verb, held, partial(stage.queue.settle, held, delivered=confirmed, error=error))


def receiver(stage: Stage) -> Life:
    """Stores each reply and applies its effect, and sends its receipt."""
    while True:
        letter = yield Wait(FOREVER_SECONDS, for_mail=True)
        if letter is None:
            continue
        sent: Delivery = letter.content
        receipt = stage.call(
            RECEIVER,
            "accept",
            sent.reply_id,
            partial(stage.receiver.accept, sent.reply_id, sent.payload, _applied),
            end="receiver",
        )
        if isinstance(receipt, Receipt):
            stage.scheduler.send(letter.sender, Letter(RECEIVER, receipt))


def _applied(connection: sa.Connection, reply_id: str, _payload: str) -> None:
    connection.execute(sa.text("INSERT INTO applied (reply_id) VALUES (:reply_id)"), {"reply_id": reply_id})


def canceller(stage: Stage, identities: list[str]) -> Life:
    """Cancels a task now and then, whatever became of it."""
    for identity in identities:
        yield Wait(TICK_SECONDS * stage.random.randint(4, 20))
        stage.call("canceller", "cancel", identity, partial(stage.queue.cancel, identity))


def maintenance(stage: Stage) -> Life:
    """Reconciles every few seconds."""
    while True:
        yield Wait(TICK_SECONDS * stage.random.randint(4, 10))
        stage.call("maintenance", "reconcile", "", stage.queue.reconcile)
