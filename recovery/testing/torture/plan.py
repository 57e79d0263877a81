"""What a torture is made of: where, how long, which actors, how often each fault. All of it follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recovery.testing.torture.tally import Tally

PRINCIPAL: Final = "torture"
OWN_EFFECTS: Final = "torture_effects"
QUEUES: Final = ("default", "other")
LEASE_SECONDS: Final = 1.0
MAX_HOPS: Final = 4
SENDER, WORKER, DISPATCHER, RECEIVER, MAINTENANCE = "sender", "worker", "dispatcher", "receiver", "maintenance"
CAST: Final = {SENDER: 2, WORKER: 4, DISPATCHER: 2, RECEIVER: 2, MAINTENANCE: 1}
SETTINGS: Final[dict[str, Any]] = {
    "allowed_sources": {PRINCIPAL},
    "lease_seconds": LEASE_SECONDS,
    "backoff": 0.1,
    "delivery_backoff": 0.1,
    "delivery_attempts": 6,
    "max_hops": MAX_HOPS,
}
"""How the queue is opened: short leases and waits, so that much happens in a minute."""

POINTS: Final = {
    SENDER: ("receive",),
    WORKER: ("claim", "renew", "finish", "finish_and_claim", "fail", "release"),
    DISPATCHER: ("claim_reply", "renew_reply", "settle"),
    RECEIVER: ("accept",),
    MAINTENANCE: ("cancel", "reconcile"),
}
"""The verbs of each role that commit: each has a place before and one after its COMMIT."""
PLACES: Final = ("before", "after")
JUMPS: Final = 0.3
"""The share of lives whose own clock jumps, where clocks do."""
JUMP_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Rates:
    """How many faults of each kind there are in a second, on average; 0 where a kind cannot be had."""

    kills: float = 1.2
    stops: float = 1.2
    cuts: float = 6.0
    terminations: float = 0.5
    crashes: float = 0.14
    full_disks: float = 0.5


@dataclass(frozen=True, slots=True)
class Doom:
    """When a life ends by its own hand: at the n-th commit of a verb, before it is sent or after it returned."""

    verb: str
    place: str
    countdown: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All that an actor has to know. `url` is where actors connect, `direct_url` leads past the proxy.

    `clocks_jump` says that lives may find their own clock an hour off. `cuts_by_actors` is how many answers the actors
    lose themselves in a second, together; 0 where a proxy does.
    """

    url: str
    direct_url: str
    receiver_url: str
    folder: Path
    seconds: float
    seed: int
    began: float
    receiver_port: int
    cuts_by_actors: float
    clocks_jump: bool
    tally: Tally = field(repr=False)

    def random(self, *names: object) -> random.Random:
        """A source of chance of its own for every purpose."""
        return random.Random(":".join(map(str, (self.seed, *names))))

    @property
    def histories(self) -> Path:
        """Where the actors write."""
        return self.folder / "histories"
