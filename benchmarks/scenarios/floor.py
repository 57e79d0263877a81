"""The floor: what the library sends, sent again by the driver alone, in the same frame on a held connection.

A tape of one run is made once. Each round then runs the library, the tape through the driver, and on PostgreSQL the
tape through pgbench, each on tables that were filled with the same tasks in the same order; so the driver's
parameters, recorded ready encoded, are right. Our cost over the possible is the ratio of the medians' rounds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any

import sqlalchemy as sa

from recovery import Queue

from ..bench import Bench, Point
from ..counting import cycle, finish_all
from ..filling import PAST_SECONDS, RESULT, Fill, envelope, fill
from ..measuring import median, ratio, rounded
from ..pgbench import milliseconds as pgbench_milliseconds
from ..probes import Call, moved, play, taped
from ..targets import AUTH, Place
from .strategies import STRATEGIES, raw_on

BATCH = 100
WARM = 3
TURN_CYCLES = 10


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of work: how many tasks a cycle does, how, and whether it needs them pending."""

    name: str
    tasks: int
    cycle: Callable[[Any, list[Any]], object]
    filled: bool

    def inputs(self, salt: str, cycles: int, payload_bytes: int) -> list[list[Any]]:
        """What each cycle is given: messages to be received, or nothing."""
        if self.filled:
            return [[] for _ in range(cycles)]
        names = iter(range(cycles * self.tasks))
        return [[envelope(f"{salt}{next(names)}", payload_bytes) for _ in range(self.tasks)] for _ in range(cycles)]


WORKS = (
    Work("claim+finish, one at a time", 1, lambda session, _: cycle(session, 1), filled=True),
    Work("claim+finish, batches of 100", BATCH, lambda session, _: cycle(session, BATCH), filled=True),
    Work("receive one", 1, lambda session, some: session.receive(some[0], AUTH), filled=False),
    Work("receive_all of 100", BATCH, lambda session, some: session.receive_all(some, AUTH), filled=False),
)


@dataclass(frozen=True, slots=True)
class Tape:
    """What was sent for some warm-up cycles and for each measured one, and in which place."""

    prefix: str
    warm: list[Call]
    measured: list[list[Call]]


Step = Callable[[int], object]
"""Does that many cycles more."""
Way = Callable[[], AbstractContextManager[Step]]
"""Opens a way to work, warms it up, and closes it."""


def run(bench: Bench) -> list[Point]:
    """One point for each kind of work, and one for `finish_and_claim`."""
    return [*(_against_floor(bench, work) for work in WORKS), _fused(bench)]


def _cycles(bench: Bench, work: Work) -> int:
    return max(2, bench.options.cycles // (10 if work.tasks > 1 else 1))


@contextmanager
def _place(bench: Bench, work: Work, cycles: int) -> Iterator[Place]:
    with bench.target.fresh() as place:
        if work.filled:
            _filled(bench, place, (cycles + WARM + 1) * work.tasks)
        yield place


def _filled(bench: Bench, place: Place, count: int) -> None:
    # Due long before the tape was made: its claims carry the time at which they were recorded.
    long_ago = {"available_at": f"{time.time() - 24 * PAST_SECONDS:.0f}"}
    fill(place, Fill("pending", count, bench.salt("floor"), bench.options.payload_bytes, long_ago))


def _tape(bench: Bench, work: Work, cycles: int) -> Tape:
    inputs = work.inputs(bench.salt("floor"), cycles + WARM, bench.options.payload_bytes)
    with _place(bench, work, cycles) as place:
        engine = place.engine()
        try:
            queue = Queue(engine, **place.settings())
            with taped(engine) as tape, queue.session() as session:
                session.connection()
                tape.clear()
                for given in inputs[:WARM]:
                    work.cycle(session, given)
                ends = [len(tape.calls)]
                for given in inputs[WARM:]:
                    work.cycle(session, given)
                    ends.append(len(tape.calls))
                calls = tape.kept().calls
        finally:
            engine.dispose()
    return Tape(place.prefix, calls[: ends[0]], [calls[low:high] for low, high in pairwise(ends)])


def _against_floor(bench: Bench, work: Work) -> Point:
    cycles = _cycles(bench, work)
    bench.step(f"{work.name}: taping")
    tape = _tape(bench, work, cycles)
    ways: dict[str, Way] = {
        "library": lambda: _library(bench, work, cycles),
        "floor": lambda: _floor(bench, work, cycles, tape),
    }
    if work.name == WORKS[0].name:
        ways["pool"] = lambda: _library(bench, work, cycles, held=False)
        ways["autocommit"] = lambda: _autocommit(bench, work, cycles)
    after = _pgbench_of(bench, work, cycles, tape) if bench.target.backend == "postgresql" else {}
    rounds = _interleaved(bench, work.name, ways, cycles, after)
    ratios = [ratio(ours, least) for ours, least in zip(rounds["library"], rounds["floor"], strict=True)]
    per_task = {f"{name}_ms_per_task": rounded(median(found) / work.tasks) for name, found in rounds.items()}
    facts = {"work": work.name, "batch": work.tasks, "workers": 1, "cycles": cycles, "rounds": bench.options.rounds}
    return bench.point("floor", **facts, over_floor=rounded(median(ratios), 3), ratios=_all(ratios), **per_task)


def _all(values: Sequence[float]) -> list[float | None]:
    return [rounded(value, 3) for value in values]


def _interleaved(
    bench: Bench, name: str, ways: dict[str, Way], cycles: int, after: dict[str, Callable[[], float]] | None = None
) -> dict[str, list[float]]:
    """Milliseconds per cycle for each way and round.

    All ways of a round are open side by side and take turns, a few cycles at a time: a disk or a processor that is
    slow for a second is slow for all of them. What stands in `after` runs by itself behind each round.
    """
    after = after or {}
    found: dict[str, list[float]] = {way: [] for way in (*ways, *after)}
    for number in range(bench.options.rounds):
        bench.step(f"{name}: round {number + 1} of {bench.options.rounds}")
        for way, spent in _round(ways, cycles, number).items():
            found[way].append(spent)
        for way, alone in after.items():
            bench.step(f"{name}: {way}, round {number + 1} of {bench.options.rounds}")
            found[way].append(alone())
    return found


def _round(ways: dict[str, Way], cycles: int, number: int) -> dict[str, float]:
    """Milliseconds per cycle for each way. Each turn begins with another way."""
    spent = dict.fromkeys(ways, 0.0)
    with ExitStack() as stack:
        steps = {name: stack.enter_context(way()) for name, way in ways.items()}
        names = list(steps)
        gc.collect()
        for turn, count in enumerate(_turns(cycles)):
            first = (turn + number) % len(names)
            for name in names[first:] + names[:first]:
                began = time.perf_counter()
                steps[name](count)
                spent[name] += time.perf_counter() - began
    return {name: seconds * 1000 / cycles for name, seconds in spent.items()}


def _turns(cycles: int) -> list[int]:
    """How many cycles each turn has."""
    whole, rest = divmod(cycles, TURN_CYCLES)
    return [TURN_CYCLES] * whole + ([rest] if rest else [])


@contextmanager
def _library(bench: Bench, work: Work, cycles: int, *, held: bool = True) -> Iterator[Step]:
    """The library on a held session, or with a checkout from the pool for each verb."""
    inputs = iter(work.inputs(bench.salt("floor"), cycles + WARM, bench.options.payload_bytes))
    with _place(bench, work, cycles) as place, place.queue() as queue, queue.session() as session:
        door: Any = session if held else queue

        def step(count: int) -> None:
            for given in islice(inputs, count):
                work.cycle(door, given)

        step(WARM)
        yield step


@contextmanager
def _floor(bench: Bench, work: Work, cycles: int, tape: Tape) -> Iterator[Step]:
    """The tape through the driver's cursor."""
    with _place(bench, work, cycles) as place, raw_on(place) as raw:
        cursor = raw.driver.cursor()
        play(raw.driver, cursor, moved(tape.warm, tape.prefix, place.prefix))
        measured = iter([moved(calls, tape.prefix, place.prefix) for calls in tape.measured])

        def step(count: int) -> None:
            for calls in islice(measured, count):
                play(raw.driver, cursor, calls)

        yield step
        _check(place, work, (cycles + WARM) * work.tasks)


def _pgbench_of(bench: Bench, work: Work, cycles: int, tape: Tape) -> dict[str, Callable[[], float]]:
    """The tape through pgbench: milliseconds per cycle. It counts its own time, so that it cannot take turns."""

    def pgbench() -> float:
        with _place(bench, work, cycles) as place:
            calls = moved([*tape.warm, *chain.from_iterable(tape.measured)], tape.prefix, place.prefix)
            milliseconds = pgbench_milliseconds(place, calls) / (cycles + WARM)
            _check(place, work, (cycles + WARM) * work.tasks)
            return milliseconds

    return {"pgbench": pgbench}


def _check(place: Place, work: Work, expected: int) -> None:
    """A tape that no longer fits would be quick, and would do nothing."""
    tasks = place.tables.tasks
    counted = sa.select(sa.func.count()).select_from(tasks)
    engine = place.engine()
    try:
        with engine.connect() as connection:
            found = connection.execute(counted.where(tasks.c.state == "done") if work.filled else counted).scalar_one()
    finally:
        engine.dispose()
    if found != expected:
        raise RuntimeError(f"{work.name}: the tape did {found} of {expected} tasks.")


@contextmanager
def _autocommit(bench: Bench, work: Work, cycles: int) -> Iterator[Step]:
    """The least that could be called a claim and a finish: see `strategies`."""
    strategy = next(iter(STRATEGIES[bench.target.backend].values()))
    with _place(bench, work, cycles) as place, raw_on(place) as raw:

        def step(count: int) -> None:
            for _ in range(count):
                strategy.finish(raw, strategy.claim(raw, "bench"))

        step(WARM)
        yield step


FUSED = Work("finish_and_claim over finish then claim", 1, lambda session, _: cycle(session, 1), filled=True)


def _fused(bench: Bench) -> Point:
    cycles = _cycles(bench, FUSED)
    ways: dict[str, Way] = {
        "fused": lambda: _loop(bench, cycles, lambda session, claim: session.finish_and_claim(claim, RESULT)),
        "apart": lambda: _loop(bench, cycles, _finish_then_claim),
    }
    rounds = _interleaved(bench, FUSED.name, ways, cycles)
    gains = [ratio(apart, fused) for apart, fused in zip(rounds["apart"], rounds["fused"], strict=True)]
    per_task = {f"{name}_ms_per_task": rounded(median(found)) for name, found in rounds.items()}
    facts = {"work": FUSED.name, "batch": 1, "workers": 1, "cycles": cycles, "rounds": bench.options.rounds}
    return bench.point("floor", **facts, gain=rounded(median(gains), 3), ratios=_all(gains), **per_task)


def _finish_then_claim(session: Any, claim: Any) -> Any:
    session.finish(claim, RESULT)
    return session.claim("bench")


@contextmanager
def _loop(bench: Bench, cycles: int, follow: Callable[[Any, Any], Any]) -> Iterator[Step]:
    with _place(bench, FUSED, cycles) as place, place.queue() as queue, queue.session() as session:
        held = session.claim("bench")

        def step(count: int) -> None:
            nonlocal held
            for _ in range(count):
                held = follow(session, held)

        step(WARM)
        yield step
        finish_all(session, [held])
