"""When which fault is due: all of it from the seed, whatever has become of the actors meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")
LONGEST_GAP: Final = 3.0
"""No gap is longer than so many average ones: a short run has its faults, too."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault: seconds after the beginning, its kind, and two numbers from 0 to 1 that say whom and how much."""

    at: float
    kind: str
    whom: float
    size: float


class Timetable:
    """Faults at the average rates given, each kind by a chance of its own."""

    def __init__(self, chance: Callable[[str], random.Random], rates: Mapping[str, float]) -> None:
        self._rates = {kind: rate for kind, rate in rates.items() if rate > 0}
        self._chances = {kind: chance(kind) for kind in self._rates}
        self._next = {kind: self._after(kind, 0.0) for kind in self._rates}

    def due(self, elapsed: float) -> list[Fault]:
        """The faults up to this time that were not returned before, in order."""
        found = []
        for kind in self._next:
            while self._next[kind].at <= elapsed:
                found.append(self._next[kind])
                self._next[kind] = self._after(kind, found[-1].at)
        return sorted(found)

    def _after(self, kind: str, at: float) -> Fault:
        chance, rate = self._chances[kind], self._rates[kind]
        gap = min(chance.expovariate(rate), LONGEST_GAP / rate)
        return Fault(at + gap, kind, chance.random(), chance.random())


def chosen(everybody: Sequence[T], whom: float, fits: Callable[[T], bool]) -> T | None:
    """The one that was meant, or the next after it that fits; None where nobody does."""
    first = int(whom * len(everybody))
    return next((one for one in [*everybody[first:], *everybody[:first]] if fits(one)), None)
