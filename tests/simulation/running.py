"""One simulation from its seed to its verdict."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

import pytest

from recovery import Envelope
from tests.simulation import actors
from tests.simulation.judging import judge
from tests.simulation.scheduling import CALM
from tests.simulation.stage import SENDER, START, Event, Stage
from tests.worlds.contents import ENDED, Contents, task_id

VARIABLE: Final = "RECOVERY_SIMULATION_SEED"
RUNS_VARIABLE: Final = "RECOVERY_SIMULATION_RUNS"
RUNS: Final = 8
MESSAGES: Final = 24
SENDERS: Final = 4
ROUGH_SECONDS: Final = 60.0
TURNS_MAX: Final = 20_000
DRAIN_ROUNDS, DRAIN_TURNS = 40, 50


class Wrong(AssertionError):
    """A simulation ended with a broken promise. The sentence says how to see it again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed came to: all that happened, and the promises that were broken."""

    seed: int
    history: list[Event]
    violations: list[str]

    @property
    def trace(self) -> list[str]:
        """The history, a line for each event."""
        return [str(event) for event in self.history]

    @property
    def digest(self) -> str:
        """A short name of the history: two runs that have the same one went the same way."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    def checked(self) -> Outcome:
        """The same, if every promise was kept. Raises Wrong."""
        if self.violations:
            last = "\n".join(self.trace[-20:])
            wrong = "\n".join(f"  ! {one}" for one in self.violations)
            again = f"{VARIABLE}={self.seed} pytest tests/simulation"
            raise Wrong(f"seed {self.seed}, history {self.digest}; again: {again}\n{wrong}\nit ended with\n{last}")
        return self

    def __str__(self) -> str:
        return f"seed {self.seed}: {len(self.history)} events, history {self.digest}"


def simulate(urls: tuple[str, str], seed: int) -> Outcome:
    """Run one simulation on a queue's and a receiver's database, both migrated and empty."""
    with contextlib.closing(Stage(urls, seed)) as stage:
        envelopes = _envelopes(Random(seed))
        stage.names = {task_id(SENDER, one.message_id): one.message_id for one in envelopes}
        _enter(stage, envelopes)
        stage.scheduler.run(TURNS_MAX, lambda: stage.clock.now >= START + ROUGH_SECONDS)
        stage.note("everything", "calms down")
        stage.scheduler.chances = CALM
        contents = _drained(stage, len(envelopes))
        return Outcome(seed, stage.history, judge(stage.history, envelopes, contents))


def _envelopes(random: Random) -> list[Envelope]:
    """Messages with little and with much time, few and more attempts, and one that came through too many hands."""
    return [
        Envelope(
            f"m{number}",
            SENDER,
            {"n": number},
            START + random.choice((2.0, 10.0, 30.0, 90.0, 1000.0)),
            random.choice((1, 2, 3, 5)),
            random.choice((0, 0, 0, 4)),
            priority=random.choice((0, 0, 5)),
        )
        for number in range(1, MESSAGES + 1)
    ]


def _enter(stage: Stage, envelopes: list[Envelope]) -> None:
    add = stage.scheduler.add
    add(actors.GATE, partial(actors.gate, stage))
    add(actors.RECEIVER, partial(actors.receiver, stage))
    for number in range(SENDERS):
        name = f"sender-{number + 1}"
        add(name, partial(actors.sender, stage, name, envelopes[number::SENDERS]))
    for name in ("worker-1", "worker-2", "worker-3"):
        add(name, partial(actors.worker, stage, name))
    for name in ("dispatcher-1", "dispatcher-2"):
        add(name, partial(actors.dispatcher, stage, name))
    add("liar", partial(actors.liar, stage))
    identities = list(stage.names)
    stage.random.shuffle(identities)
    add("canceller", partial(actors.canceller, stage, identities[:6]))
    add("maintenance", partial(actors.maintenance, stage))


def _drained(stage: Stage, messages: int) -> Contents:
    """Go on in peace until everything has ended, within bounds; return what is stored then."""
    contents = stage.contents()
    for _ in range(DRAIN_ROUNDS):
        if _is_drained(contents, messages):
            break
        stage.scheduler.run(DRAIN_TURNS, lambda: False)
        contents = stage.contents()
    return contents


def _is_drained(contents: Contents, messages: int) -> bool:
    tasks = [row.state in ENDED for row in contents.queue.tasks]
    replies = [row.state in {"sent", "dead"} for row in contents.queue.outbox]
    return len(tasks) == messages and all(tasks + replies)


def seeds(environment: Mapping[str, str]) -> list[int]:
    """The one seed that the environment names, or the first few, or as many as it asks for."""
    if VARIABLE in environment:
        return [_whole(environment[VARIABLE], VARIABLE)]
    return list(range(1, 1 + _whole(environment.get(RUNS_VARIABLE, str(RUNS)), RUNS_VARIABLE)))


def _whole(text: str, name: str) -> int:
    if not text.isdecimal():
        raise pytest.UsageError(f"{name} is {text!r}; it takes a whole number.")
    return int(text)
