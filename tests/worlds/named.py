"""The worlds that are explored, from what a few actors do with one task to everybody and two of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from tests.worlds.steps import DELIVERY, WORK, World

VARIABLE: Final = "RECOVERY_WORLDS"
POLLING: Final = frozenset({"claim, polling", "claim reply, polling"})
TASK: Final = frozenset({"receive", "claim", "claim, polling", "cancel", "reconcile", "settle task"}) | WORK
REPLY: Final = frozenset({"claim reply", "claim reply, polling", "reconcile", "settle reply"}) | DELIVERY

WORKERS: Final = World(name="two workers, a canceller and a reconciler, one task", verbs=TASK)
OUTBOX: Final = World(
    # The message comes too late, so that its task has ended at once and all that is left to do is to deliver its reply.
    name="two dispatchers and a receiver, one reply",
    verbs=REPLY | {"receive"},
    workers=(),
    dispatchers=("d", "e"),
    deadline_seconds=0.0,
)
WHOLE: Final = World(name="everybody, one task", verbs=TASK | REPLY)
TWO_TASKS: Final = World(
    name="two workers, a canceller and a reconciler, two tasks",
    verbs=frozenset({"receive", "claim", "finish x", "release", "cancel", "reconcile", "settle task"}),
    priorities=(0, 1),
    max_attempts=1,
    deadline_seconds=3.0,
    fates=("dies",),
)
LATE: Final = World(
    name="a worker and a canceller with little time, one task",
    verbs=frozenset({"receive", "claim", "fail", "cancel"}),
    workers=("a",),
    deadline_seconds=1.0,
    fates=(),
)

CLOSED: Final = {WORKERS: 290, OUTBOX: 295}
"""Worlds that are explored to their end in seconds, and how many states they have."""
CUT_OFF: Final = {WHOLE: (400, 5840), TWO_TASKS: (400, 3741)}
"""Larger worlds: how many of the nearest states the short form looks at, and how many there are in all."""


def is_full(environment: Mapping[str, str]) -> bool:
    """Whether the environment asks for the large worlds as a whole, which takes many minutes."""
    asked = environment.get(VARIABLE, "short")
    if asked not in {"short", "full"}:
        raise pytest.UsageError(f"{VARIABLE} is {asked}; it takes short and full.")
    return asked == "full"
