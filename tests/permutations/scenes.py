"""Which verbs meet over which beginning: all pairs in which both have something to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Final, LiteralString, TypeAlias

from recovery.testing.promises import task_id
from tests.permutations.acting import Call
from tests.permutations.beginnings import DEADLINE, LEASE_ENDS, Begun, Things
from tests.permutations.place import START, Hindrance
from tests.permutations.running import Play
from tests.permutations.verbs import VERBS

Script: TypeAlias = tuple[str, ...]
Hinder: TypeAlias = Callable[[Things], Hindrance]
STALE: Final = "stale "
"""Before a verb's name: it is called with what was taken over since."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Two who meet over one beginning, each with its verbs; maybe the clock is turned, or a third one hinders both."""

    beginning: str
    a: Script
    b: Script
    tick: int | None = None
    hindrance: str = ""

    @property
    def scripts(self) -> dict[str, Script]:
        """The verbs of each, by name."""
        return {"a": self.a, "b": self.b}

    def __str__(self) -> str:
        time = "" if self.tick is None else f", the clock turns to {self.tick}"
        hindered = f", somebody has {self.hindrance}" if self.hindrance else ""
        return f"{self.beginning}{time}{hindered}: {', then '.join(self.a)} | {', then '.join(self.b)}"

    def play(self, begun: Begun, *, without: str = "") -> Play:
        """What is run; `without` the calls of one of them."""
        scripts = {name: script for name, script in self.scripts.items() if name != without}
        calls = {name: [_call(verb, begun.things, name) for verb in script] for name, script in scripts.items()}
        hindrance = HINDRANCES[self.hindrance](begun.things) if self.hindrance else None
        return Play(begun.beginning, calls, self.tick, hindrance)


def _call(verb: str, things: Things, name: str) -> Call:
    mine = things.with_stale() if verb.startswith(STALE) else things
    function = VERBS[verb.removeprefix(STALE)]
    return lambda door: function(door, mine, name)


def _has_task(index: int) -> Hinder:
    lock: LiteralString = "SELECT 1 FROM tasks WHERE task_id = %(id)s FOR UPDATE"
    return lambda things: Hindrance(lock, {"id": things.tasks[index]})


def _has_reply(index: int) -> Hinder:
    lock: LiteralString = "SELECT 1 FROM outbox WHERE task_id = %(id)s FOR UPDATE"
    return lambda things: Hindrance(lock, {"id": things.tasks[index]})


def _has_message(number: int) -> Hinder:
    insert: LiteralString = "INSERT INTO inbox VALUES (%(id)s, 'agent-a', %(message)s, 'task', 'v1:')"
    known = {"id": task_id("agent-a", f"m-{number}"), "message": f"m-{number}"}
    return lambda _: Hindrance(insert, known)


HINDRANCES: Final[Mapping[str, Hinder]] = {
    "the middle task": _has_task(1),
    "the middle reply": _has_reply(1),
    "the middle message": _has_message(2),
}
"""What a third one has, and then gives back as it was."""

HOLDING: Final = ("renew", "finish", "fail", "release")
TASK: Final = ("claim", *HOLDING, "cancel", "reconcile")
SETTLING: Final = ("settle delivered", "settle not delivered", "settle refused")
DELIVERING: Final = ("renew reply", *SETTLING)
REPLY: Final = ("claim reply", *DELIVERING, "reconcile")
HOLDS: Final = frozenset({*HOLDING, *DELIVERING, "fail for good", "finish and claim"})
"""The verbs of somebody who holds the row; a claim that was over at one of `OVER` is lost to them."""
OVER: Final = frozenset({DEADLINE, LEASE_ENDS})
LATER: Final = START + 3
"""A time at which nothing is over yet."""
OPEN: Final = ("claim", "cancel", "reconcile")


def pairs(
    beginning: str, verbs: Sequence[str], *, tick: int | None = None, one_of: Iterable[str] = ()
) -> Iterator[Scene]:
    """Every pair of verbs, with itself too; where it is said, only those with at least one of some."""
    wanted = set(one_of or verbs)
    for a, b in combinations_with_replacement(verbs, 2):
        if wanted & {a, b}:
            yield Scene(beginning, (a,), (b,), tick)


def against(beginning: str, left: Sequence[str], right: Sequence[str]) -> Iterator[Scene]:
    """Each of some against each of others."""
    for a, b in product(left, right):
        yield Scene(beginning, (a,), (b,))


def batches(beginning: str, a: str, b: str, middle: str) -> Iterator[Scene]:
    """Two batches of three, freely, and while a third one has the row in the middle.

    If each locked in its own order, one would have the first then and the other the last, and neither would ever end.
    """
    for hindrance in ("", middle):
        yield Scene(beginning, (a,), (b,), hindrance=hindrance)


TASK_SCENES: Final = (
    *pairs("pending", ("claim", "cancel")),
    *pairs("pending, deadline passed", OPEN),
    *pairs("held", (*HOLDING, "cancel")),
    *against("held", ("claim",), ("fail", "release")),
    *against("held", ("fail for good", "finish and claim", "finish otherwise"), ("finish", "release", "cancel")),
    *pairs("held, lease over", TASK),
    *pairs("held, last attempt", (*HOLDING, "cancel"), one_of=("fail", "release")),
    *pairs("held, last attempt, lease over", TASK, one_of=("claim", "reconcile")),
    *pairs("held, deadline passed", TASK),
    *against("held again", [f"{STALE}{verb}" for verb in HOLDING], (*HOLDING, "cancel")),
    *against("held", ("receive", "receive otherwise"), ("cancel", "finish")),
    *pairs("nothing", ("receive", "receive otherwise")),
)
REPLY_SCENES: Final = (
    *pairs("reply pending", ("claim reply",)),
    *pairs("reply sending", DELIVERING),
    *against("reply sending", ("claim reply",), ("settle not delivered",)),
    *pairs("reply sending, lease over", REPLY),
    *pairs("reply sending, last attempt", DELIVERING, one_of=("settle not delivered",)),
    *pairs("reply sending, last attempt, lease over", REPLY, one_of=("claim reply", "reconcile")),
    *against("reply sending again", [f"{STALE}{verb}" for verb in DELIVERING], DELIVERING),
    *against("reply pending, and a task", ("claim",), ("claim reply", "reconcile")),
    *against("reply sending, lease over, and a task", ("claim",), REPLY),
    *against("reply pending, and a task at its deadline", ("claim",), ("claim reply", "reconcile")),
    *against("held", ("claim reply",), ("finish", "fail for good", "cancel")),
    *against("held, last attempt, lease over", ("claim reply",), ("claim", "reconcile")),
)
TIME_SCENES: Final = (
    *pairs("held", HOLDING, tick=LATER, one_of=("renew",)),
    *pairs("held", (*HOLDING, "cancel"), tick=LEASE_ENDS, one_of=("finish",)),
    *pairs("held, deadline near", (*HOLDING, "cancel"), tick=DEADLINE, one_of=("finish",)),
    *pairs("reply sending", DELIVERING, tick=LATER, one_of=("renew reply",)),
    *pairs("reply sending", DELIVERING, tick=LEASE_ENDS, one_of=("settle delivered",)),
)
LONG_SCENES: Final = (
    *pairs("pending, deadline near", OPEN, tick=DEADLINE),
    *pairs("held", TASK, tick=LATER),
    *pairs("held", TASK, tick=LEASE_ENDS),
    *pairs("held, deadline near", TASK, tick=DEADLINE),
    *pairs("reply sending", REPLY, tick=LATER),
    *pairs("reply sending", REPLY, tick=LEASE_ENDS),
)
"""Time passes beside every pair, those above too: the permutations are many, for whoever asks for everything."""
BATCH_SCENES: Final = (
    *batches("three held", "finish all", "finish all, backwards", "the middle task"),
    Scene("two held", ("finish all",), ("cancel the other", "cancel")),
    Scene("two pending", ("cancel", "cancel the other"), ("cancel the other", "cancel")),
    Scene("two pending", ("claim two",), ("claim two",)),
    Scene("two pending", ("claim", "claim"), ("claim two",)),
    Scene("two pending", ("claim two",), ("cancel the other", "cancel")),
    Scene("two held, leases over", ("claim two",), ("claim two",)),
    Scene("two held, leases over", ("claim two",), ("finish all, backwards",)),
    Scene("two held, leases over", ("reconcile",), ("finish all, backwards",)),
    *batches("three sending", "settle all", "settle all, backwards", "the middle reply"),
    Scene("two sending, leases over", ("claim two replies",), ("settle all, backwards",)),
    *batches("nothing", "receive all", "receive all, backwards", "the middle message"),
    *batches("nothing", "receive all", "receive all otherwise, backwards", "the middle message"),
)
MANY_ENDS: Final = (
    Scene("two held, leases over", ("reconcile",), ("claim two",)),
    Scene("two sending, leases over", ("reconcile",), ("claim two replies",)),
)
"""One goes row by row, a transaction each, while the other passes over the row of that moment.

Between one verb after the other and these lies every mixture, so that only the checker judges what comes out.
"""
CORE: Final = (
    Scene("pending", ("claim",), ("claim",)),
    Scene("held", ("finish",), ("fail",)),
    Scene("held", ("finish",), ("renew",), LATER),
    Scene("held, lease over", ("claim",), ("release",)),
    Scene("held, lease over", ("renew",), ("reconcile",)),
    Scene("held again", (f"{STALE}finish",), ("renew",)),
    Scene("reply sending", ("settle delivered",), ("settle not delivered",)),
    Scene("reply sending, lease over", ("claim reply",), ("settle refused",)),
    *batches("three held", "finish all", "finish all, backwards", "the middle task"),
)
"""One of each kind, for every setting of the database."""
