"""The worlds: who is in them, what each may do next, and how each verb is called on the product and on the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from recovery import AuthContext, Claim, Delivery, Envelope, Receiver
from recovery.queue import Session
from recovery.repositories import OutboxRepository, TaskRepository
from recovery.transactions import REPEATABLE
from tests.worlds.contents import reply_id, task_id
from tests.worlds.memory import Fate
from tests.worlds.model import Model, Times

START: Final = 1000.0
SENDER: Final = "agent-a"
AUTH: Final = AuthContext(SENDER)
TICK_SECONDS: Final = 1.0
"""Every lease, backoff and deadline is a whole number of ticks: time stops just before, at and after each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Its actors, what they may do, and its bounds. Times are whole numbers of ticks, in seconds.

    `fates` are the kinds of what may happen at a commit. A message with priority 1 goes before one with 0.
    """

    name: str
    verbs: frozenset[str]
    workers: tuple[str, ...] = ("a", "b")
    dispatchers: tuple[str, ...] = ("d",)
    priorities: tuple[int, ...] = (0,)
    max_attempts: int = 2
    deadline_seconds: float = 5.0
    times: Times = field(default_factory=Times)
    fates: tuple[str, ...] = ("dies", "doubt")

    def envelopes(self) -> list[Envelope]:
        """The messages that may be sent, in their order."""
        deadline = START + self.deadline_seconds
        return [
            Envelope(f"m{number}", SENDER, {"n": number}, deadline, self.max_attempts, priority=priority)
            for number, priority in enumerate(self.priorities, 1)
        ]


class Held(NamedTuple):
    """A claim or a delivery in the hands of an actor; a delivery is confirmed once its receipt arrived."""

    actor: str
    thing: Any
    confirmed: bool = False

    @property
    def identity(self) -> str:
        """The id of its row."""
        found: str = self.thing.task_id if isinstance(self.thing, Claim) else self.thing.reply_id
        return found


class Step(NamedTuple):
    """One actor does one thing, and it may go wrong at a commit."""

    actor: str
    verb: str
    held: Held | None = None
    message: Envelope | None = None
    fate: Fate | None = None

    def __str__(self) -> str:
        held = "" if self.held is None else f" with {self.name_of(self.held)}"
        message = "" if self.message is None else f" {self.message.message_id}"
        fate = "" if self.fate is None else f", and {self.fate}"
        return f"{self.actor}: {self.verb}{message}{held}{fate}"

    @staticmethod
    def name_of(held: Held) -> str:
        """A claim by what it is of and its fence."""
        what = "claim" if isinstance(held.thing, Claim) else "delivery"
        return f"{what} {held.identity.removeprefix('reply:')[:6]}/{held.thing.fence}"


class Ends(NamedTuple):
    """Both ends of a delivery, open."""

    queue: Session
    receiver: Receiver


class Verb(NamedTuple):
    """One thing that an actor does: on the product, and by the model."""

    product: Callable[[Ends, Step], Any]
    model: Callable[[Model, Step], Any]


def _applied(connection: sa.Connection, reply_id: str, _payload: str) -> None:
    """The receiver's business: it has no key of its own to save it from being done twice."""
    connection.execute(sa.text("INSERT INTO applied (reply_id) VALUES (:reply_id)"), {"reply_id": reply_id})


def _polled(verb: str) -> Callable[[Ends, Step], Any]:
    """The same as somebody asks who found nothing the last time: the product first looks by reading only."""

    def call(ends: Ends, step: Step) -> Any:
        quiet = ends.queue.quiet
        assert quiet is not None
        quiet.add(getattr(type(ends.queue), verb).__wrapped__)
        return getattr(ends.queue, verb)(step.actor)

    return call


def _on_claim(name: str, *values: Any, **options: Any) -> Verb:
    """A verb of a worker on a claim that it holds, stale or not."""

    def product(ends: Ends, step: Step) -> Any:
        assert step.held is not None
        return getattr(ends.queue, name)(step.held.thing, *values, **options)

    def model(model: Model, step: Step) -> Any:
        assert step.held is not None
        return getattr(model, name)(step.held.identity, step.held.thing, *values, **options)

    return Verb(product, model)


def _settle(error: str | None, *, permanent: bool = False) -> Verb:
    def product(ends: Ends, step: Step) -> Any:
        assert step.held is not None
        return ends.queue.settle(step.held.thing, delivered=error is None, error=error, permanent=permanent)

    def model(model: Model, step: Step) -> Any:
        assert step.held is not None
        thing = step.held.thing
        return model.settle(step.held.identity, thing, delivered=error is None, permanent=permanent)

    return Verb(product, model)


def _message(step: Step) -> Envelope:
    assert step.message is not None
    return step.message


def _received(model: Model, step: Step) -> Any:
    message = _message(step)
    assert isinstance(message.deadline, float)
    identity = task_id(SENDER, message.message_id)
    return model.receive(identity, message.deadline, message.max_attempts, message.priority)


def _task_of(step: Step) -> str:
    return task_id(SENDER, _message(step).message_id)


def _settle_one(room: type[TaskRepository | OutboxRepository]) -> Callable[[Ends, Step], Any]:
    """One of the transactions of a reconcile, whatever happened since that looked for what is due."""

    def call(ends: Ends, step: Step) -> Any:
        key = _task_of(step) if room is TaskRepository else reply_id(_task_of(step))
        settings = ends.queue.settings
        return ends.queue.run(lambda connection: room(connection, settings).settle_one(key), REPEATABLE)

    return call


def _send(ends: Ends, step: Step) -> Any:
    assert step.held is not None
    return ends.receiver.accept(step.held.thing.reply_id, step.held.thing.payload, _applied)


def _accepted(model: Model, step: Step) -> Any:
    assert step.held is not None
    return model.accept(step.held.thing.reply_id, step.held.thing.payload)


VERBS: Final[dict[str, Verb]] = {
    "receive": Verb(lambda ends, step: ends.queue.receive(_message(step), AUTH), _received),
    "claim": Verb(lambda ends, step: ends.queue.claim(step.actor), lambda model, step: model.claim(step.actor)),
    "claim, polling": Verb(_polled("claim"), lambda model, step: model.claim(step.actor)),
    "renew": _on_claim("renew"),
    "finish x": _on_claim("finish", "x"),
    "finish y": _on_claim("finish", "y"),
    "finish x and claim": _on_claim("finish_and_claim", "x"),
    "fail": _on_claim("fail", "boom", retryable=True),
    "give up": _on_claim("fail", "bad", retryable=False),
    "release": _on_claim("release"),
    "cancel": Verb(
        lambda ends, step: ends.queue.cancel(_task_of(step)), lambda model, step: model.cancel(_task_of(step))
    ),
    "reconcile": Verb(lambda ends, _: ends.queue.reconcile(), lambda model, _: model.reconcile()),
    "settle task": Verb(_settle_one(TaskRepository), lambda model, step: model.settle_one_task(_task_of(step))),
    "settle reply": Verb(_settle_one(OutboxRepository), lambda model, step: model.settle_one_reply(_task_of(step))),
    "claim reply": Verb(
        lambda ends, step: ends.queue.claim_reply(step.actor), lambda model, step: model.claim_reply(step.actor)
    ),
    "claim reply, polling": Verb(_polled("claim_reply"), lambda model, step: model.claim_reply(step.actor)),
    "renew reply": _on_claim("renew_reply"),
    "send": Verb(_send, _accepted),
    "send, ACK lost": Verb(_send, _accepted),
    "settle delivered": _settle(None),
    "settle lost": _settle("ACK lost"),
    "settle refused": _settle("different content", permanent=True),
}

SETTLE: Final = ("settle task", "settle reply")
"""A reconcile in its parts, between which others may do what they like."""
WORK: Final = frozenset({"renew", "finish x", "finish y", "finish x and claim", "fail", "give up", "release"})
"""What a worker does with a claim."""
DELIVERY: Final = frozenset(
    {"renew reply", "send", "send, ACK lost", "settle delivered", "settle lost", "settle refused"}
)
"""What a dispatcher does with a delivery."""
REPEATED: Final = frozenset(
    {"receive", "renew", "finish x", "finish y", "renew reply", "send", "send, ACK lost", "reconcile", *SETTLE}
)
"""The library itself asks again where the answer to a COMMIT was lost: a repeat of these is harmless."""


def steps(world: World, held: Iterable[Held]) -> Iterator[Step]:
    """Everything that somebody may do next, the clock aside, with nothing going wrong."""
    mine = world.verbs
    for message in world.envelopes():
        yield from (Step("sender", verb, message=message) for verb in ("receive",) if verb in mine)
        yield from (Step("canceller", verb, message=message) for verb in ("cancel",) if verb in mine)
        yield from (Step("maintenance", verb, message=message) for verb in SETTLE if verb in mine)
    for worker in world.workers:
        yield from (Step(worker, verb) for verb in ("claim", "claim, polling") if verb in mine)
    for dispatcher in world.dispatchers:
        yield from (Step(dispatcher, verb) for verb in ("claim reply", "claim reply, polling") if verb in mine)
    for one in held:
        yield from (Step(one.actor, verb, one) for verb in sorted(mine & _possible(one)))
    yield from (Step("maintenance", verb) for verb in ("reconcile",) if verb in mine)


def _possible(one: Held) -> frozenset[str]:
    if not isinstance(one.thing, Delivery):
        return WORK
    return DELIVERY - ({"settle lost", "settle refused"} if one.confirmed else {"settle delivered"})


def fates(world: World, step: Step, writes: int) -> Iterator[Step]:
    """The same step again, going wrong at each of its commits that wrote."""
    for number in range(1, writes + 1):
        for kind in ("dies", "doubt"):
            if kind in world.fates:
                yield step._replace(fate=Fate(kind, "before", number))
                yield step._replace(fate=Fate(kind, "after", number))
