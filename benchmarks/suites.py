"""The two whole runs: short, for a look, and full, whose report is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from . import scenarios
from .bench import Bench, Options, Point

SHORT = Options(processes=(1, 2, 8), batch=(1, 100), seconds=2.0, rounds=5, cycles=100)
FULL = Options()
CLOSING_PROCESSES = (1, 8)


def short(bench: Bench) -> list[Point]:
    """Contention, the whole way and the floor."""
    return [point for name in ("contention", "whole", "floor") for point in scenarios.run(name, bench)]


def full(bench: Bench) -> list[Point]:
    """Every scenario; contention once in full, and then its bars' points again in rounds."""
    points = scenarios.run("contention", bench)
    points += rounds(bench)
    points += scenarios.run("strategies", bench.but(processes=CLOSING_PROCESSES, seconds=bench.options.seconds / 2))
    points += scenarios.run("receive", bench)
    points += scenarios.run("whole", bench)
    points += scenarios.run("growth", bench.but(batch=(1, max(bench.options.batch))))
    points += scenarios.run("floor", bench)
    points += scenarios.run("memory", bench)
    return points


def rounds(bench: Bench) -> list[Point]:
    """The points that bars are about, in rounds that alternate between one worker and eight."""
    points: list[Point] = []
    for number in range(bench.options.rounds):
        order = CLOSING_PROCESSES[:: -1 if number % 2 else 1]
        numbered = replace(bench, tell_point=lambda _: None).but(processes=order, batch=(1,))
        for point in scenarios.run("contention", numbered):
            points.append({**point, "round": number + 1})
            bench.tell_point(points[-1])
    return points


SUITES: dict[str, tuple[Callable[[Bench], list[Point]], Options]] = {"short": (short, SHORT), "full": (full, FULL)}
