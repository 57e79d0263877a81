"""The beginnings of scenes: one task or one reply, in each situation in which verbs meet over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from recovery import AuthContext, Claim, Delivery, Envelope, Queue, Receiver
from recovery.testing.history import Operation
from recovery.testing.recording import RecordedQueue
from tests.permutations.acting import SETTINGS
from tests.permutations.noting import Notes
from tests.permutations.place import START, Beginning, Place

AUTH: Final = AuthContext("agent-a")
FAR: Final = 4e9
LEASE_ENDS: Final = START + 10
DEADLINE: Final = START + 5


@dataclass(slots=True)
class Things:
    """What verbs are called with. A `stale` claim or delivery is one of the same owner that was taken over since."""

    tasks: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    stale: list[Any] = field(default_factory=list)

    def with_stale(self) -> Things:
        """The same for somebody who has the stale ones."""
        claims = [one for one in self.stale if isinstance(one, Claim)]
        return dataclasses.replace(self, claims=claims, deliveries=[one for one in self.stale if one not in claims])


class Maker:
    """Makes a beginning through the verbs, with a history of all that was asked."""

    def __init__(self, place: Place, door: RecordedQueue) -> None:
        self._place, self._door = place, door
        self.things = Things()

    def receive(self, number: int = 1, **changes: Any) -> None:
        """A message comes in."""
        ack = self._door.receive(message(number, **changes), AUTH)
        self.things.tasks.append(ack.task_id)

    def claim(self) -> None:
        """A worker takes the next task."""
        self.things.claims += self._door.claim("worker")

    def finish(self) -> None:
        """It finishes all that it has."""
        for claim in self.things.claims:
            self._door.finish(claim, 0)
        self.things.claims.clear()

    def claim_reply(self) -> None:
        """A dispatcher takes the next reply, and the receiver stores it; nobody has settled yet."""
        found = self._door.claim_reply("dispatcher")
        self.things.deliveries += found
        with Receiver.open(self._place.url) as receiver:
            for delivery in found:
                receiver.accept(delivery.reply_id, delivery.payload)

    def turn(self, now: int) -> None:
        """Time passes."""
        self._place.turn(now)

    def take_over(self) -> None:
        """What was held so far is stale from now on: the lease ends, and the same owner takes the row again."""
        held = self.things.claims + self.things.deliveries
        self.things.stale = list(held)
        replies = bool(self.things.deliveries)
        self.things.claims, self.things.deliveries = [], []
        self.turn(LEASE_ENDS)
        self.claim_reply() if replies else self.claim()


Make: TypeAlias = Callable[[Maker], None]


def message(number: int = 1, **changes: Any) -> Envelope:
    """A message of agent-a."""
    return Envelope(f"m-{number}", "agent-a", **{"payload": {"n": 1}, "deadline": FAR, **changes})


def _held(make: Maker, **changes: Any) -> None:
    make.receive(**changes)
    make.claim()


def _sending(make: Maker) -> None:
    _held(make)
    make.finish()
    make.claim_reply()


def _then(*makes: Make) -> Make:
    def make(maker: Maker) -> None:
        for one in makes:
            one(maker)

    return make


def _received(**changes: Any) -> Make:
    return lambda make: make.receive(**changes)


def _claimed(**changes: Any) -> Make:
    return lambda make: _held(make, **changes)


def _at(now: int) -> Make:
    return lambda make: make.turn(now)


def _over(make: Maker) -> None:
    make.turn(LEASE_ENDS)


def _several_held(count: int) -> Make:
    def make(maker: Maker) -> None:
        for number in range(1, count + 1):
            _held(maker, number=number)

    return make


def _several_sending(count: int) -> Make:
    return _then(_several_held(count), Maker.finish, *[Maker.claim_reply] * count)


BEGINNINGS: Final[Mapping[str, Make]] = {
    "nothing": lambda _: None,
    "pending": _received(),
    "pending, deadline passed": _then(_received(deadline=DEADLINE), _at(DEADLINE)),
    "pending, deadline near": _received(deadline=DEADLINE),
    "held": _claimed(),
    "held, lease over": _then(_claimed(), _over),
    "held, last attempt": _claimed(max_attempts=1),
    "held, last attempt, lease over": _then(_claimed(max_attempts=1), _over),
    "held, deadline passed": _then(_claimed(deadline=DEADLINE), _at(DEADLINE)),
    "held, deadline near": _claimed(deadline=DEADLINE),
    "held again": _then(_claimed(), Maker.take_over),
    "reply pending": _then(_claimed(), Maker.finish),
    "reply sending": _sending,
    "reply sending, lease over": _then(_sending, _over),
    "reply sending, last attempt": _sending,
    "reply sending, last attempt, lease over": _then(_sending, _over),
    "reply sending again": _then(_sending, Maker.take_over),
    "reply pending, and a task": _then(_claimed(), Maker.finish, _received(number=2)),
    "reply sending, lease over, and a task": _then(_sending, _over, _received(number=2)),
    "reply pending, and a task at its deadline": _then(
        _claimed(), Maker.finish, _received(number=2, deadline=DEADLINE), _at(DEADLINE)
    ),
    "two pending": _then(_received(), _received(number=2)),
    "two held": _several_held(2),
    "two held, leases over": _then(_several_held(2), _over),
    "two sending, leases over": _then(_several_sending(2), _over),
    "three held": _several_held(3),
    "three sending": _several_sending(3),
}


@dataclass(frozen=True, slots=True)
class Begun:
    """A beginning that is set aside, and how it came to it."""

    beginning: Beginning
    things: Things
    operations: tuple[Operation, ...]


def begun(place: Place, name: str) -> Begun:
    """Make a beginning, by its name."""
    place.empty()
    place.turn(START)
    settings = {**SETTINGS, "delivery_attempts": 1 if "last attempt" in name else 3}
    notes = Notes("before")
    with Queue.open(place.url, **settings) as queue:
        maker = Maker(place, RecordedQueue(queue, notes))
        BEGINNINGS[name](maker)
    return Begun(place.set_aside(), maker.things, tuple(notes.operations.values()))
