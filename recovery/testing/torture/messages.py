"""The messages: each follows from the seed and its number, so that a later life of its sender sends the same again."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Final

from recovery.messages import AuthContext, Envelope
from recovery.testing.promises import task_id
from recovery.testing.torture.plan import MAX_HOPS, PRINCIPAL, QUEUES, Plan

AUTH: Final = AuthContext(PRINCIPAL)
FAR_SECONDS: Final = 86_400.0
LATE, SOON, FAR = 0.02, 0.06, 0.08
"""Shares: below the first a deadline that is over, then one that comes during the run, then too many hops."""


def message_id(sender: str, number: int) -> str:
    """What a sender calls its n-th message."""
    return f"{sender}-{number}"


def number_of(name: str) -> int:
    """The number in such a name."""
    return int(name.rpartition("-")[2])


def task_of(sender: str, number: int) -> str:
    """The task of a sender's n-th message."""
    return task_id(PRINCIPAL, message_id(sender, number))


def envelope(plan: Plan, name: str) -> Envelope:
    """The message of that name."""
    chance = plan.random("message", name)
    return Envelope(
        name,
        PRINCIPAL,
        _payload(chance),
        max_attempts=chance.choice((1, 3, 3, 5, 10)),
        queue=chance.choice(QUEUES),
        priority=chance.randrange(10),
        **_fate(plan, chance),
    )


def collision(plan: Plan, name: str) -> Envelope:
    """Another message of the same name."""
    return dataclasses.replace(envelope(plan, name), payload={"another": True})


def _payload(chance: random.Random) -> dict[str, Any]:
    return {"n": chance.randrange(1000), "x": chance.random(), "text": "ä\u2028\0" * chance.randrange(20)}


def _fate(plan: Plan, chance: random.Random) -> dict[str, Any]:
    share = chance.random()
    if share < LATE:
        return {"deadline": plan.began - 1.0}
    if share < SOON:
        return {"deadline": plan.began + chance.uniform(0.0, plan.seconds)}
    return {"deadline": plan.began + FAR_SECONDS, "hops": MAX_HOPS if share < FAR else chance.randrange(MAX_HOPS)}
