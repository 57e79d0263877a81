"""One run of the benchmarks: where, how much, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .targets import Target

Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person can set. Counts that a scenario has no use for are not looked at by it."""

    processes: tuple[int, ...] = (1, 2, 4, 8, 16)
    batch: tuple[int, ...] = (1, 10, 100)
    threads: int = 1
    seconds: float = 5.0
    payload_bytes: int = 0
    seed: int = 1
    rounds: int = 5
    cycles: int = 300
    rows: int = 1_000_000
    minute_seconds: float = 60.0


@dataclass(slots=True)
class Bench:
    """A target, the options, and whom to tell about each step and each point."""

    target: Target
    options: Options = field(default_factory=Options)
    tell_step: Callable[[str], object] = lambda _: None
    tell_point: Callable[[Point], object] = lambda _: None

    def step(self, said: str) -> None:
        """Say what is being done now."""
        self.tell_step(said)

    def point(self, scenario: str, **facts: Any) -> Point:
        """One finished point, told at once."""
        made = {"scenario": scenario, "backend": self.target.backend, **facts}
        self.tell_point(made)
        return made

    def salt(self, *parts: object) -> str:
        """What message ids begin with: the same for the same seed."""
        return "-".join(["s", str(self.options.seed), *map(str, parts), ""])

    def but(self, **changes: Any) -> Bench:
        """The same with other options."""
        return replace(self, options=replace(self.options, **changes))
