"""Does it stay as quick as it was: with many rows, with many that are not due, after a crash, beside an old reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import sqlalchemy as sa

from ..bench import Bench, Point
from ..filling import Fill, fill
from ..measuring import median, percentile, ratio, rounded
from ..targets import Place
from ..workers import LEAD_SECONDS, Plan, Run
from ..workers import run as run_workers
from .contention import first_rate, measured, verified

EXPIRED_ROWS = 10_000
SPENT = "expired"
"""The kind that is gone once it was settled: it is made anew for each round, and counts from the first claim on."""
MARGIN = 200
LAST_SHARE = 1 / 6
"""The last ten seconds of a minute are what counts once the old transaction has had time to hurt."""


def run(bench: Bench) -> list[Point]:
    """One point for each case and batch size, each against an empty table in rounds that alternate."""
    points = []
    for batch in bench.options.batch:
        points += [_case(bench, name, some, batch) for name, some in cases(bench).items()]
    points.append(_old(bench))
    return points


def cases(bench: Bench) -> dict[str, tuple[Fill, ...]]:
    """What stands in the tables beside what is worked on."""
    rows = bench.options.rows
    tenth = max(1, rows // 10)
    expired = min(EXPIRED_ROWS, rows)
    return {
        f"{tenth:,} finished": (Fill("done", tenth, "old"),),
        f"{rows:,} finished": (Fill("done", rows, "old"),),
        f"{rows:,} pending": (Fill("pending", rows, "old"),),
        f"{tenth:,} not due yet": (Fill("future", tenth, "later"),),
        f"{expired:,} expired leases at once": (Fill(SPENT, expired, "dead"),),
    }


def _case(bench: Bench, name: str, beside: tuple[Fill, ...], batch: int) -> Point:
    options = bench.options
    lead = 0.0 if beside[0].kind == SPENT else LEAD_SECONDS
    rounds: dict[str, list[Run]] = {"empty": [], name: []}
    with _stocks(bench, {"empty": (), name: beside}, batch) as stocks:
        for number in range(options.rounds):
            for case in sorted(rounds, reverse=bool(number % 2)):
                bench.step(f"filling: {case}, round {number + 1} of {options.rounds}")
                place = stocks[case].filled()
                bench.step(f"{case}, batch {batch}, round {number + 1} of {options.rounds}")
                rounds[case].append(run_workers([Plan(place, options.seconds, batch)], lead_seconds=lead))
                stocks[case].used(rounds[case][-1])
    rates = {case: [_rate(found) for found in some] for case, some in rounds.items()}
    ratios = [ratio(full, empty) for full, empty in zip(rates[name], rates["empty"], strict=True)]
    return bench.point(
        "growth",
        case=name,
        kind=beside[0].kind,
        rows=beside[0].count,
        workers=1,
        batch=batch,
        rounds=options.rounds,
        tasks_per_second=rounded(median(rates[name]), 1),
        tasks_per_second_empty=rounded(median(rates["empty"]), 1),
        over_empty=rounded(median(ratios), 3),
        ratios=[rounded(one, 3) for one in ratios],
        claim_p50_ms=_claim_ms(rounds[name], 50),
        claim_p50_ms_empty=_claim_ms(rounds["empty"], 50),
        claim_p99_ms=_claim_ms(rounds[name], 99),
        claim_p99_ms_empty=_claim_ms(rounds["empty"], 99),
    )


class Stock:
    """A place that has what stands beside, and each time as much to do as one round can need, and no more."""

    def __init__(self, bench: Bench, beside: tuple[Fill, ...], batch: int) -> None:
        self._bench = bench
        self._beside = beside
        self._fresh = any(one.kind == SPENT for one in beside)
        self._rate = first_rate(batch)
        self._left = self._times = 0
        self._places = ExitStack()
        self._place: Place | None = None

    def filled(self) -> Place:
        """The place, topped up; a new one where what stands beside is spent by working."""
        options = self._bench.options
        if self._fresh:
            self.close()
        beside: tuple[Fill, ...] = ()
        if self._place is None:
            self._place = self._places.enter_context(self._bench.target.fresh())
            beside, self._left = self._beside, 0
        need = max(0, int((options.seconds + LEAD_SECONDS) * self._rate) + MARGIN - self._left)
        self._times += 1
        salt = self._bench.salt("growth", self._times)
        fill(self._place, *beside, Fill("pending", need, salt, options.payload_bytes))
        self._left += need
        return self._place

    def used(self, found: Run) -> None:
        """Note what a round has used up."""
        self._left -= sum(len(log.done) for log in found.logs)
        self._rate = max(self._rate / 2, 1.5 * _rate(found))

    def close(self) -> None:
        """Drop the place."""
        self._places.close()
        self._place = None


@contextmanager
def _stocks(bench: Bench, cases: dict[str, tuple[Fill, ...]], batch: int) -> Iterator[dict[str, Stock]]:
    with ExitStack() as at_the_end:
        made = {name: Stock(bench, beside, batch) for name, beside in cases.items()}
        for stock in made.values():
            at_the_end.callback(stock.close)
        yield made


def _rate(found: Run) -> float:
    return float(measured(found)["tasks_per_second"] or 0)


def _claim_ms(found: list[Run], percent: float) -> float | None:
    return rounded(1000 * percentile([wait for one in found for wait in one.waits()], percent))


def _old(bench: Bench) -> Point:
    """A minute of load with nobody watching, and beside a transaction that was opened before it and reads nothing."""
    rates: dict[bool, list[list[float]]] = {False: [], True: []}
    for number in range(bench.options.rounds):
        for old in (bool(number % 2), not number % 2):
            bench.step(f"{'beside an old transaction' if old else 'alone'}, round {number + 1}")
            rates[old].append(_minute(bench, old=old))
    lasts = {old: [one[-1] for one in some] for old, some in rates.items()}
    ratios = [ratio(beside, alone) for beside, alone in zip(lasts[True], lasts[False], strict=True)]
    return bench.point(
        "growth",
        case=f"an old transaction, open for {bench.options.minute_seconds:g} s",
        kind="old",
        workers=2,
        batch=1,
        rounds=bench.options.rounds,
        tasks_per_second=rounded(median(lasts[True]), 1),
        tasks_per_second_empty=rounded(median(lasts[False]), 1),
        over_empty=rounded(median(ratios), 3),
        ratios=[rounded(one, 3) for one in ratios],
        course=_course(rates[True]),
        course_empty=_course(rates[False]),
    )


def _course(rates: list[list[float]]) -> list[float | None]:
    return [rounded(median(column), 1) for column in zip(*rates, strict=True)]


def _minute(bench: Bench, *, old: bool) -> list[float]:
    """Tasks per second in each sixth of the time."""
    seconds = bench.options.minute_seconds
    supply = int((seconds + LEAD_SECONDS) * first_rate(1))
    with bench.target.fresh() as place:
        fill(place, Fill("pending", supply, bench.salt("old")))
        with _watching(place) if old else ExitStack():
            found = run_workers([Plan(place, seconds, number=number) for number in range(2)])
        if any(verified(place, found, supply)[name] for name in ("duplicates", "lost")):
            raise RuntimeError("tasks were lost or done twice.")
    return slices(found, round(1 / LAST_SHARE))


def slices(found: Run, count: int) -> list[float]:
    """Tasks per second in so many equal parts of the window."""
    length = found.seconds / count
    sums = [0] * count
    for spell in chain.from_iterable(found.spells()):
        sums[min(count - 1, int((spell.ended - found.start) / length))] += spell.tasks
    return [total / length for total in sums]


@contextmanager
def _watching(place: Place) -> Iterator[None]:
    """A transaction that has read once and is then forgotten by whoever began it."""
    engine = place.engine()
    level: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if place.backend == "postgresql" else {}
    try:
        with engine.connect().execution_options(**level) as connection, connection.begin():
            connection.execute(sa.select(sa.func.count()).select_from(place.tables.fence_floor)).all()
            yield
    finally:
        engine.dispose()
