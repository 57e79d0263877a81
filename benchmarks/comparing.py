"""What the comparison with other libraries found, as points for the bars: our figure over the best of theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from .bench import Point
from .measuring import ratio, rounded

MEASURES: Final = {
    "process": "processing_over_best",
    "single": "enqueue_one_over_best",
    "batch": "enqueue_batch_over_best",
}
OURS: Final = "recovery"
WEAKER: Final = ("synchronous=OFF", "synchronous=NORMAL", "synchronous_commit=off")
"""Settings that may lose what was acknowledged at a power cut: who has them is shown, and sets no bar."""


def compared(file: Path) -> list[Point]:
    """One point for each backend in a `peers.json`."""
    lines: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["lines"]
    backends = sorted({line["backend"] for line in lines})
    return [_point(backend, [line for line in lines if line["backend"] == backend]) for backend in backends]


def _point(backend: str, lines: list[dict[str, Any]]) -> Point:
    ours = [line for line in lines if line["label"].startswith(OURS)]
    theirs = [line for line in lines if not line["label"].startswith(OURS) and _is_durable(line)]
    over = {name: rounded(ratio(_best(ours, at), _best(theirs, at)), 3) for at, name in MEASURES.items()}
    return {"scenario": "peers", "backend": backend, **over}


def _is_durable(line: dict[str, Any]) -> bool:
    return not any(setting in (line.get("durability") or "") for setting in WEAKER)


def _best(lines: list[dict[str, Any]], measure: str) -> float:
    """The highest median of a measure; NaN where nobody offers it."""
    return max((line["medians"][measure] for line in lines if line["medians"].get(measure)), default=float("nan"))
