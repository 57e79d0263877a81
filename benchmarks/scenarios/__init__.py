"""The scenarios: each module has `run(bench)`, which returns one dictionary for each point."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ..bench import Bench

NAMES: Final = ("contention", "strategies", "receive", "whole", "growth", "floor", "memory")
Point = dict[str, Any]


def run(name: str, bench: Bench) -> list[Point]:
    """Run one scenario on one target."""
    points: list[Point] = import_module(f"{__name__}.{name}").run(bench)
    return points
