"""Arithmetic on what was measured: percentiles, medians, ratios. No clock is read here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PERCENTILES = ((50, "p50"), (95, "p95"), (99, "p99"), (100, "max"))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all are not above (nearest rank); NaN where there is none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread_ms(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """The percentiles of durations given in seconds, in milliseconds: `name_p50_ms` to `name_max_ms`."""
    ordered = sorted(seconds)
    return {f"{name}_{short}_ms": in_ms(percentile(ordered, percent)) for percent, short in PERCENTILES}


def in_ms(seconds: float) -> float | None:
    """Seconds as milliseconds with four digits after the point; None for NaN, which JSON does not have."""
    return None if math.isnan(seconds) else round(seconds * 1000, 4)


def median(values: Iterable[float]) -> float:
    """The median; NaN where there is no value."""
    kept = [value for value in values if not math.isnan(value)]
    return statistics.median(kept) if kept else math.nan


def ratio(above: float, below: float) -> float:
    """`above / below`, NaN where it says nothing."""
    return above / below if below and not math.isnan(above) and not math.isnan(below) else math.nan


def rounded(value: float, digits: int = 4) -> float | None:
    """The value for JSON: rounded, and None for NaN and infinity."""
    return round(value, digits) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Spell:
    """One unit of a worker's work: when it asked, when it held, when it had ended it, and how many tasks that were."""

    began: float
    held: float
    ended: float
    tasks: int


def histogram(seconds: Sequence[float], per_decade: int = 10) -> list[list[float]]:
    """Durations counted in bins whose edges grow by a constant factor: pairs of upper edge in ms, and count."""
    counts: dict[int, int] = {}
    for value in seconds:
        bin_number = math.ceil(math.log10(max(value * 1000, 1e-4)) * per_decade)
        counts[bin_number] = counts.get(bin_number, 0) + 1
    return [[round(10 ** (number / per_decade), 5), count] for number, count in sorted(counts.items())]
