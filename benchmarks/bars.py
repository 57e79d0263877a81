"""The bars: what the library has to reach, and whether it did. All figures are medians of interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import nan
from typing import Final

from .bench import Point
from .measuring import median, ratio, rounded

LEAST, MOST = "at least", "at most"
Figure = Callable[[list[Point]], float | None]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what is looked at, on which backend, which way it must lie, and where."""

    work: str
    figure: Figure
    way: str
    bars: dict[str, float]
    scenario: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar, the figure that was found (None where it was not measured), and whether the bar is met."""

    work: str
    backend: str
    bar: str
    figure: float | None
    met: bool | None

    @property
    def word(self) -> str:
        """As the closing table says it."""
        return "not measured" if self.met is None else "met" if self.met else "NOT MET"


def _only(points: Iterable[Point], name: str, **facts: object) -> float | None:
    """The median of a figure over the points that are as said."""
    found = [point.get(name) for point in points if all(point.get(key) == value for key, value in facts.items())]
    return rounded(median(value for value in found if value is not None))


def _over_floor(work: str) -> Figure:
    return lambda points: _only(points, "over_floor", scenario="floor", work=work)


def _contention(points: list[Point], name: str, workers: int) -> float | None:
    return _only(points, name, scenario="contention", workers=workers, batch=1)


def _scaling(points: list[Point]) -> float | None:
    """Round by round where there were rounds, else from the two points."""
    return _paired(points, lambda many, one: ratio(many["tasks_per_second"], one["tasks_per_second"]))


def _tail(points: list[Point]) -> float | None:
    return _paired(points, lambda many, one: ratio(_known(many["claim_p99_ms"]), MANY * _known(one["claim_p50_ms"])))


def _paired(points: list[Point], figure: Callable[[Point, Point], float]) -> float | None:
    """The median over rounds of a figure of the point with 8 workers and the one with 1."""
    some = [point for point in points if point["scenario"] == "contention" and point["batch"] == 1]
    rounds = {point.get("round"): point for point in some if point["workers"] == 1}
    pairs = [(many, rounds.get(many.get("round"))) for many in some if many["workers"] == MANY]
    return rounded(median(figure(many, one) for many, one in pairs if one is not None))


def _known(value: float | None) -> float:
    return nan if value is None else value


MANY: Final = 8


def _growth(*kinds: str, largest: bool = True) -> Figure:
    """The worst of these cases at one task at a time; of several sizes the largest."""

    def figure(points: list[Point]) -> float | None:
        found = []
        for kind in kinds:
            some = [p for p in points if p["scenario"] == "growth" and p["kind"] == kind and p["batch"] == 1]
            some.sort(key=lambda point: point.get("rows", 0))
            found += [point["over_empty"] for point in (some[-1:] if largest else some)]
        return min((one for one in found if one is not None), default=None)

    return figure


def _peers(name: str) -> Figure:
    return lambda points: _only(points, name, scenario="peers")


BOTH: Final = ("postgresql", "sqlite")
BARS: Final = (
    Bar("claim+finish, one at a time: over the floor", _over_floor("claim+finish, one at a time"), MOST,
        {"postgresql": 1.4, "sqlite": 1.4}, "floor"),
    Bar("claim+finish, batches of 100: over the floor", _over_floor("claim+finish, batches of 100"), MOST,
        {"postgresql": 1.4, "sqlite": 1.4}, "floor"),
    Bar("receive one: over the floor", _over_floor("receive one"), MOST,
        {"postgresql": 1.4, "sqlite": 1.4}, "floor"),
    Bar("receive_all of 100: over the floor", _over_floor("receive_all of 100"), MOST,
        {"postgresql": 1.4, "sqlite": 1.4}, "floor"),
    Bar("finish_and_claim over finish then claim", lambda points: _only(points, "gain", scenario="floor"), LEAST,
        {"postgresql": 1.25, "sqlite": 1.25}, "floor"),
    Bar("tasks per second at 8 workers over 1", _scaling, LEAST, {"postgresql": 1.3, "sqlite": 0.8}, "contention"),
    Bar("claim p99 at 8 processes over 8 x p50 at one", _tail, MOST, {"postgresql": 3, "sqlite": 5}, "contention"),
    Bar("least served of 8 workers over the most served",
        lambda points: _contention(points, "least_over_most", MANY), LEAST,
        {"postgresql": 0.8, "sqlite": 0.7}, "contention"),
    Bar("throughput with the most finished or pending rows over an empty table", _growth("done", "pending"), LEAST,
        {"postgresql": 0.9, "sqlite": 0.9}, "growth"),
    Bar("throughput after a minute beside an old open transaction, over none", _growth("old"), LEAST,
        {"postgresql": 0.5, "sqlite": 0.9}, "growth"),
    Bar("processing rate over the best Python peer", _peers("processing_over_best"), LEAST,
        {"postgresql": 3, "sqlite": 4}, "peers"),
    Bar("single enqueue over the best Python peer", _peers("enqueue_one_over_best"), LEAST,
        {"postgresql": 1.0, "sqlite": 1.0}, "peers"),
    Bar("batch enqueue over the best Python peer", _peers("enqueue_batch_over_best"), LEAST,
        {"postgresql": 1.2, "sqlite": 1.5}, "peers"),
    Bar("memory after the most tasks over memory after 1,000",
        lambda points: _only(points, "over_few", scenario="memory"), MOST,
        {"postgresql": 1.1, "sqlite": 1.1}, "memory"),
)  # fmt: skip


def verdicts(points: list[Point]) -> list[Verdict]:
    """Every bar on every backend; all of them after a whole run, else those of the scenarios that were run."""
    backends = [backend for backend in BOTH if any(point["backend"] == backend for point in points)]
    ran = {point["scenario"] for point in points}
    whole = ran >= {bar.scenario for bar in BARS} - {"peers"}
    return [_verdict(bar, backend, points) for bar in BARS if whole or bar.scenario in ran for backend in backends]


def _verdict(bar: Bar, backend: str, points: list[Point]) -> Verdict:
    figure = bar.figure([point for point in points if point["backend"] == backend])
    limit = bar.bars[backend]
    met = None if figure is None else figure <= limit if bar.way == MOST else figure >= limit
    return Verdict(bar.work, backend, f"{bar.way} {limit:g}", figure, met)
