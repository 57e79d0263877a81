"""The report: JSON for programs, Markdown for people, and the pictures where matplotlib is."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .bars import Verdict, verdicts
from .bench import Point

TITLES = {
    "contention": "Contention: many workers, one queue",
    "strategies": "Strategies, side by side",
    "receive": "Receiving",
    "whole": "The whole way",
    "growth": "Growth",
    "floor": "Over the floor",
    "memory": "Memory of a worker",
    "peers": "Peers",
}
COLUMNS: dict[str, tuple[str, ...]] = {
    "contention": (
        "workers", "batch", "tasks_per_second", "claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "claim_max_ms",
        "claim_finish_p50_ms", "claim_finish_p99_ms", "longest_wait_ms", "least_over_most", "empty_claims", "retries",
        "busy_errors", "duplicates", "lost", "statements_per_task", "commits_per_task",
    ),
    "strategies": (
        "strategy", "workers", "tasks_per_second", "claim_p50_ms", "claim_p99_ms", "claim_max_ms", "longest_wait_ms",
        "least_over_most", "tries_per_claim", "busy_errors", "duplicates",
    ),
    "receive": (
        "way", "duplicate_share", "messages_per_second", "call_p50_ms", "call_p95_ms", "call_p99_ms",
        "statements_per_message", "commits_per_message",
    ),
    "whole": ("case", "messages_per_second", "whole_p50_ms", "whole_p99_ms", "pickup_p50_ms", "pickup_p95_ms",
              "pickup_max_ms", "receive_p50_ms", "claim_p50_ms", "finish_p50_ms", "claim_reply_p50_ms",
              "accept_p50_ms", "settle_p50_ms"),
    "growth": (
        "case", "workers", "batch", "tasks_per_second", "tasks_per_second_empty", "over_empty", "claim_p50_ms",
        "claim_p50_ms_empty", "claim_p99_ms", "claim_p99_ms_empty",
    ),
    "floor": (
        "work", "over_floor", "gain", "library_ms_per_task", "floor_ms_per_task", "pgbench_ms_per_task",
        "pool_ms_per_task", "autocommit_ms_per_task", "fused_ms_per_task", "apart_ms_per_task",
    ),
    "memory": ("tasks", "few_bytes", "many_bytes", "over_few"),
    "peers": ("processing_over_best", "enqueue_one_over_best", "enqueue_batch_over_best"),
}  # fmt: skip
BACKENDS = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
HEADS = {
    "least_over_most": "least / most served",
    "over_empty": "over empty",
    "over_floor": "over the floor",
    "over_few": "over few",
    "duplicate_share": "duplicates sent",
}


def save(folder: Path, name: str, machines: Sequence[dict[str, Any]], points: list[Point]) -> list[Path]:
    """Write `name.json`, `name.md` and the pictures, and return what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machines": list(machines), "points": points}
    data, page = folder / f"{name}.json", folder / f"{name}.md"
    data.write_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    pictures = _pictures(folder, points)
    page.write_text(markdown(machines, points, [path.name for path in pictures if path.suffix == ".svg"]), "utf-8")
    return [data, page, *pictures]


def read(files: Sequence[Path]) -> tuple[list[dict[str, Any]], list[Point]]:
    """What several runs found, as one: each machine once, and all points in the order of the files.

    `unfinished.json` of a run that was broken off is read too.
    """
    machines: list[dict[str, Any]] = []
    points: list[Point] = []
    for file in files:
        found = json.loads(file.read_text(encoding="utf-8"))
        whole = found if isinstance(found, dict) else {"machines": [], "points": found}
        machines += [facts for facts in whole["machines"] if _same(facts) not in map(_same, machines)]
        points += whole["points"]
    return machines, points


def _same(facts: dict[str, Any]) -> dict[str, Any]:
    """What tells one machine from another: not how long a sync took in the moment when it was asked."""
    return {name: value for name, value in facts.items() if name != "disk_sync_ms"}


def _pictures(folder: Path, points: list[Point]) -> list[Path]:
    try:
        from .pictures import draw
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print(
            "no pictures were drawn: they need matplotlib (pip install 'matplotlib>=3.10', the group `bench`).",
            file=sys.stderr,
        )
        return []
    return draw(folder, points)


def markdown(machines: Sequence[dict[str, Any]], points: list[Point], pictures: Sequence[str]) -> str:
    """The whole page."""
    parts = ["# Benchmarks", "", *_machines(machines), ""]
    if pictures:
        parts += [*(f"![{name.removesuffix('.svg').replace('-', ' ')}]({name})" for name in pictures), ""]
    for scenario, title in TITLES.items():
        some = [point for point in points if point["scenario"] == scenario]
        if some:
            parts += [f"## {title}", ""]
            parts += _by_backend(scenario, some)
    return "\n".join([*parts, *closing(verdicts(points))])


def _measured(points: list[Point]) -> list[str]:
    """The backends of these points, in the order in which they are told."""
    return [backend for backend in BACKENDS if any(point["backend"] == backend for point in points)]


def _machines(machines: Sequence[dict[str, Any]]) -> list[str]:
    return [" · ".join(f"{name}: {value}" for name, value in facts.items()) + "\n" for facts in machines]


def _by_backend(scenario: str, points: list[Point]) -> list[str]:
    lines = []
    for backend in _measured(points):
        some = [point for point in points if point["backend"] == backend]
        lines += [f"**{BACKENDS[backend]}**", "", *table(_columns(scenario, some), some), ""]
    return lines


def _columns(scenario: str, points: list[Point]) -> list[str]:
    known = COLUMNS.get(scenario) or tuple(
        name for name, value in points[0].items() if not isinstance(value, list | dict)
    )
    return [name for name in known if any(point.get(name) is not None for point in points)]


def table(columns: Sequence[str], rows: Sequence[Point]) -> list[str]:
    """A Markdown table."""
    head = "| " + " | ".join(HEADS.get(name, name.replace("_", " ")) for name in columns) + " |"
    rule = "|" + "|".join("---" if _is_text(name, rows) else "---:" for name in columns) + "|"
    return [head, rule, *("| " + " | ".join(_cell(row.get(name)) for name in columns) + " |" for row in rows)]


def _is_text(name: str, rows: Sequence[Point]) -> bool:
    return any(isinstance(row.get(name), str) for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - digits that say something
    return f"{value:,}" if isinstance(value, int) else str(value)


def closing(found: Sequence[Verdict]) -> list[str]:
    """The closing table: for each bar its figure, and whether it is met."""
    if not found:
        return []
    rows = [
        {
            "work": one.work,
            "backend": BACKENDS[one.backend],
            "figure": "" if one.figure is None else f"{one.figure:.3g}",
            "bar": one.bar,
            "met": one.word,
        }
        for one in found
    ]
    return ["## Bars", "", *table(("work", "backend", "figure", "bar", "met"), rows), ""]
