"""Faults of the product that only show when two meet: what the permutations must find, and in which scene."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Final, TypeAlias

import pytest

from recovery import clock
from recovery.backend import postgresql, statement
from recovery.repositories import claiming, holding, leases, receiving, tasks
from tests.permutations.beginnings import LEASE_ENDS
from tests.permutations.scenes import LATER, STALE, Scene

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """How to plant it, a scene that shows it, and words of what is said then.

    `alone` says that it already shows where one verb follows the other; else it does not.
    """

    plant: Plant
    scene: Scene
    said: str
    settings: tuple[str, ...] = ()
    alone: bool = False


def _exchanged(module: ModuleType, name: str, old: str, new: str) -> Plant:
    """A function, or a method by its class, whose source has another text in one place."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        holder, _, attribute = name.rpartition(".")
        owner = getattr(module, holder) if holder else module
        source = textwrap.dedent(inspect.getsource(getattr(owner, attribute)))
        assert source.count(old) == 1, "the text that was to be exchanged is not there, or not only there"
        space = dict(vars(module))
        exec(compile(source.replace(old, new), f"<{name} with a fault>", "exec"), space)
        patch.setattr(statement, "_statements", {})  # What the fault builds must not outlive it.
        patch.setattr(owner, attribute, space[attribute])

    return plant


def _clock_first(patch: pytest.MonkeyPatch) -> None:
    """What is one statement gets the time as a value, which was read before it was sent."""
    patch.setattr(clock, "by", lambda *_: "hand")


SKIPS: Final = ".with_for_update(skip_locked=True, key_share=True)"
FAULTS: Final[dict[str, Fault]] = {
    "a claim does not lock what it takes": Fault(
        _exchanged(claiming, "_picked", f'        {SKIPS}\n        .lateral("first")', '        .lateral("first")'),
        Scene("pending", ("claim",), ("claim",)),
        "leases never overlap",
    ),
    "a claim waits for whoever has a row": Fault(
        _exchanged(
            claiming,
            "_picked",
            f'        {SKIPS}\n        .lateral("first")',
            '        .with_for_update(key_share=True)\n        .lateral("first")',
        ),
        Scene("pending", ("claim",), ("cancel",)),
        "a claim waited",
    ),
    "a claim of replies does not lock what it takes": Fault(
        _exchanged(claiming, "_picked", f"return one{SKIPS}", "return one"),
        Scene("reply pending", ("claim reply",), ("claim reply",)),
        "leases never overlap",
    ),
    "what settles waits for whoever has a row": Fault(
        _exchanged(leases, "_due", "skip_locked=True, ", ""),
        Scene("held, lease over", ("claim",), ("cancel",)),
        "a claim waited",
    ),
    "a verb in steps does not lock its row": Fault(
        _exchanged(leases, "_lock", ".with_for_update(key_share=True)", ""),
        Scene("held", ("fail",), ("cancel",)),
        "journal replays",
    ),
    "a finish does not lock its row": Fault(
        _exchanged(holding, "held_part", "lock.with_for_update(key_share=True, of=leased.table)", "lock"),
        Scene("held", ("finish",), ("release",)),
        "journal replays",
    ),
    "a finish does not compare the fence": Fault(
        _exchanged(holding, "held_part", "        locked.c.row_fence == locked.c.fence,\n", ""),
        Scene("held again", (f"{STALE}finish",), ("renew",)),
        "answered is recorded",
        alone=True,
    ),
    "a claim that is held is judged without its fence": Fault(
        _exchanged(leases, "_broken", "type(fence) is not int or row.fence != fence", "type(fence) is not int"),
        Scene("held again", (f"{STALE}fail for good",), ("renew",)),
        "answered is recorded",
        alone=True,
    ),
    "a finish reads the clock before it has the row": Fault(
        _clock_first,
        Scene("held", ("finish",), ("renew",), LATER),
        "one after the other it would be",
    ),
    "a verb in steps reads the clock before it has the row": Fault(
        _exchanged(
            leases,
            "hold",
            "    row = lock(connection, leased, identity)\n"
            "    now = 0.0 if row is None else clock.read(connection, hand)\n",
            "    now = clock.read(connection, hand)\n    row = lock(connection, leased, identity)\n",
        ),
        Scene("held", ("renew",), ("renew",), LEASE_ENDS),
        "waited while its claim ran out",
    ),
    "reconcile does not look at a row again": Fault(
        _exchanged(
            tasks,
            "TaskRepository.settle_one",
            "row.state == states.RUNNING and row.lease_until <= now",
            "row.state == states.RUNNING",
        ),
        Scene("held, lease over", ("claim",), ("reconcile",)),
        "one after the other it would be",
    ),
    "a batch locks in the order in which it was asked": Fault(
        _exchanged(holding, "held_part", ".order_by(leased.key)", ".order_by(given.c.ord)"),
        Scene("three held", ("finish all",), ("finish all, backwards",), hindrance="the middle task"),
        "deadlock",
    ),
    "messages are stored in the order in which they came": Fault(
        _exchanged(receiving, "receive_statement", "order_by(given.c.task_id)", "order_by(given.c.ord)"),
        Scene("nothing", ("receive all",), ("receive all, backwards",), hindrance="the middle message"),
        "deadlock",
    ),
    "transactions run at whatever level the database has": Fault(
        _exchanged(postgresql, "begin_text", "BEGIN ISOLATION LEVEL READ COMMITTED", "BEGIN"),
        Scene("held", ("finish",), ("renew",)),
        "tried again",
        settings=("default_transaction_isolation = serializable",),
    ),
}
