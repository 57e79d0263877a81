"""What a run of the permutations comes to, for the lines at its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.permutations.exploring import Explored


@dataclass(slots=True)
class Totals:
    """How much was run, by name: scenes, permutations, and what was seen in them."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, name: str, explored: Explored) -> None:
        """Count one scene."""
        found = self.counts.setdefault(name, Counter())
        found.update(pairs=1, permutations=explored.permutations, runs=explored.runs, waits=explored.waits)

    def lines(self) -> list[str]:
        """A line for each name."""
        return [
            f"permutations, {name}: {of['pairs']} pairs, {of['permutations']} permutations in {of['runs']} runs, "
            f"{of['waits']} waits for a lock seen"
            for name, of in self.counts.items()
        ]
