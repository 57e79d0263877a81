"""The pictures: throughput against workers, latency, fairness, growth, strategies. Each as SVG and as PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .bench import Point
from .measuring import median

BACKENDS: Final = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
COLOURS: Final = ("#2f6fb0", "#d9762b", "#3d8f5f", "#8a5fb5", "#b0413e", "#6b6b6b", "#c9a227")
DOTS_PER_INCH: Final = 144
INCHES: Final = (4.9, 3.6)
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e2e2",
    "legend.frameon": False,
    "svg.hashsalt": "recovery",  # The same points give the same file.
    "svg.fonttype": "none",
}
Draw = Callable[[Any, list[Point]], None]


def draw(folder: Path, points: list[Point]) -> list[Path]:
    """Draw every picture that there are points for, and return the files."""
    written = []
    for name, (scenarios, fits, one) in PICTURES.items():
        some = [point for point in points if point["scenario"] in scenarios and fits(point)]
        if some:
            written += _picture(folder, name, some, one)
    return written


def _picture(folder: Path, name: str, points: list[Point], one: Draw) -> list[Path]:
    """One picture, with a panel for each backend."""
    backends = [backend for backend in BACKENDS if any(point["backend"] == backend for point in points)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(INCHES[0] * len(backends), INCHES[1]), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, backend in zip(figure.subplots(1, len(backends), squeeze=False)[0], backends, strict=True):
            one(axes, [point for point in points if point["backend"] == backend])
            axes.set_title(BACKENDS[backend])
        paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=DOTS_PER_INCH)
    return paths


def _values(points: Iterable[Point], name: str) -> list[Any]:
    return sorted({point[name] for point in points})


def _throughput(axes: Any, points: list[Point]) -> None:
    """Every round as a dot, and a line through the medians."""
    for colour, batch in zip(COLOURS, _values(points, "batch"), strict=False):
        some = [point for point in points if point["batch"] == batch]
        axes.plot([p["workers"] for p in some], [p["tasks_per_second"] for p in some], "o", color=colour, markersize=4)
        workers = _values(some, "workers")
        rates = [median([p["tasks_per_second"] for p in some if p["workers"] == one]) for one in workers]
        axes.plot(workers, rates, "-", color=colour, label=_batch(batch))
    _workers_axis(axes, points)
    axes.set_ylabel("tasks claimed and finished per second")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_thousands)
    axes.yaxis.set_minor_formatter(_thousands_if_roomy(axes))
    axes.legend(title="tasks per claim")


def _thousands(value: float, _: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _thousands_if_roomy(axes: Any) -> Callable[[float, object], str]:
    """Labels between the powers of ten, where there is at most one power of ten to be seen."""

    def label(value: float, _: object) -> str:
        low, high = axes.get_ylim()
        first = f"{value:.0e}"[0]
        return _thousands(value) if high / low < 100 and first in "235" else ""  # noqa: PLR2004 - two powers of ten

    return label


def _batch(batch: int) -> str:
    return "one" if batch == 1 else f"{batch}"


def _workers_axis(axes: Any, points: Sequence[Point]) -> None:
    workers = _values(points, "workers")
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.minorticks_off() if axes.get_yscale() == "linear" else axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xlabel("workers (processes)")


def _latency(axes: Any, points: list[Point]) -> None:
    """How many of all claims took at most so long; both axes show the tail."""
    for colour, workers in zip(COLOURS, _values(points, "workers"), strict=False):
        for again, point in enumerate(one for one in points if one["workers"] == workers):
            edges, counts = zip(*point["claim_histogram_ms"], strict=True)
            slower = [1 - done / sum(counts) for done in accumulate(counts)]
            least = 1 / (2 * sum(counts))
            shown = [max(one, least) for one in slower]
            # Every round is drawn, and named once: a name with an underscore stays out of the legend.
            axes.step(edges, shown, where="post", color=colour, label=f"{'_' * bool(again)}{workers}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=1.2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.minorticks_off()
    axes.set_xlabel("time of one claim, in milliseconds")
    axes.set_ylabel("claims that took longer")
    axes.legend(title="workers")


def _fairness(axes: Any, points: list[Point]) -> None:
    """What each worker did, as a share of what it would have been with an even hand."""
    some = [point for point in points if point["workers"] == max(_values(points, "workers"))]
    batches = _values(some, "batch")
    width = 0.8 / len(batches)
    for at, (colour, batch) in enumerate(zip(COLOURS, batches, strict=False)):
        work = sorted(next(point["work_per_worker"] for point in some if point["batch"] == batch), reverse=True)
        mean = sum(work) / len(work) or 1
        places = [number + 1 + (at - (len(batches) - 1) / 2) * width for number in range(len(work))]
        axes.bar(places, [one / mean for one in work], width, color=colour, label=_batch(batch))
    axes.axhline(1, color="#444444", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(1, some[0]["workers"] + 1))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(f"{some[0]['workers']} workers, most served first")
    axes.set_ylabel("work done, over an equal share")
    axes.set_ylim(0, max(1.25, axes.get_ylim()[1] * 1.2))
    axes.legend(title="tasks per claim", ncols=len(batches), loc="upper right")


def _growth(axes: Any, points: list[Point]) -> None:
    names = list(dict.fromkeys(point["case"] for point in points))
    batches = _values(points, "batch")
    height = 0.8 / len(batches)
    for at, (colour, batch) in enumerate(zip(COLOURS, batches, strict=False)):
        some = [point for point in points if point["batch"] == batch]
        places = [names.index(point["case"]) + (at - (len(batches) - 1) / 2) * height for point in some]
        bars = axes.barh(places, [p["over_empty"] or 0 for p in some], height, color=colour, label=_batch(batch))
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8, bbox=CLEAR)
    axes.axvline(1, color="#444444", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(names)), [_wrapped(name) for name in names])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(1.2, axes.get_xlim()[1] * 1.12))
    axes.set_xlabel("throughput over that of an empty table")
    if len(batches) > 1:
        axes.legend(title="tasks per claim", loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=len(batches))


def _wrapped(name: str) -> str:
    words = name.split(" ")
    half = (len(words) + 1) // 2
    return name if len(words) < 4 else " ".join(words[:half]) + "\n" + " ".join(words[half:])  # noqa: PLR2004


def _strategies(axes: Any, points: list[Point]) -> None:
    names = list(dict.fromkeys(point["strategy"] for point in points))
    for colour, name in zip(COLOURS, names, strict=False):
        some = sorted((p for p in points if p["strategy"] == name), key=lambda point: point["workers"])
        axes.plot(
            [p["workers"] for p in some], [p["tasks_per_second"] or 0 for p in some], "o-", color=colour, label=name
        )
    axes.set_ylim(0, axes.get_ylim()[1] * 1.45)  # Room for the legend.
    _workers_axis(axes, points)
    axes.yaxis.set_major_formatter(_thousands)
    axes.set_ylabel("tasks claimed and finished per second")
    axes.legend(fontsize=8, ncols=2, loc="upper left")


def _evenness(axes: Any, points: list[Point]) -> None:
    """How even each strategy's hand is, where most workers fight."""
    some = [point for point in points if point["workers"] == max(_values(points, "workers"))]
    shares = [point["least_over_most"] or 0 for point in some]
    bars = axes.barh(range(len(some)), shares, 0.6, color=COLOURS[2])
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8, bbox=CLEAR)
    axes.set_yticks(range(len(some)), [point["strategy"].replace(", ", ",\n") for point in some])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.12)
    axes.set_xlabel(f"work of the least over the most served of {some[0]['workers']} workers")


def _floor(axes: Any, points: list[Point]) -> None:
    places = range(len(points))
    bars = axes.barh(places, [point["over_floor"] for point in points], 0.55, color=COLOURS[0])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color="#444444", linewidth=0.8, linestyle="--")
    axes.axvline(BAR, color=COLOURS[4], linewidth=1, linestyle=":", label=f"bar: at most {BAR}")
    axes.set_yticks(places, [point["work"].replace(", ", ",\n") for point in points])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(1.7, axes.get_xlim()[1] * 1.1))
    axes.set_xlabel("time over the driver's, same statements")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16))


CLEAR: Final = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
BAR: Final = 1.4


def _any(_: Point) -> bool:
    return True


def _plain(point: Point) -> bool:
    return "round" not in point and bool(point["tasks_per_second"])


def _single(point: Point) -> bool:
    return _plain(point) and point["batch"] == 1


PICTURES: Final[dict[str, tuple[tuple[str, ...], Callable[[Point], bool], Draw]]] = {
    "throughput": (("contention",), _plain, _throughput),
    "latency": (("contention",), _single, _latency),
    "fairness": (("contention",), _plain, _fairness),
    "strategies": (("strategies",), _any, _strategies),
    "strategies-fairness": (("strategies",), _any, _evenness),
    "growth": (("growth",), _any, _growth),
    "floor": (("floor",), lambda point: "over_floor" in point, _floor),
}
