"""What a person sees while it runs: on a terminal the step and the points so far, elsewhere a line for each point.

Everything goes to standard error; standard output belongs to the results.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Protocol, Self

from .bench import Point

SHOWN = (
    "case", "strategy", "way", "work", "workers", "batch", "duplicate_share", "tasks_per_second",
    "messages_per_second", "over_empty", "over_floor", "gain", "over_few", "claim_p50_ms", "claim_p99_ms",
    "pickup_p50_ms", "pickup_p99_ms", "least_over_most", "duplicates", "lost", "busy_errors",
)  # fmt: skip


class Progress(Protocol):
    """Told about each step and each point."""

    def step(self, said: str) -> None:
        """Say what is being done."""
        ...

    def point(self, point: Point) -> None:
        """Say what was found."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def line(point: Point) -> str:
    """A point in one line."""
    said = [f"{name}={_short(point[name])}" for name in SHOWN if point.get(name) is not None]
    return f"{point['backend']} {point['scenario']}: {' '.join(said)}"


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


class Quiet:
    """Says nothing."""

    def step(self, said: str) -> None:
        """Nothing."""

    def point(self, point: Point) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing."""


class Lines(Quiet):
    """A line for each point."""

    def point(self, point: Point) -> None:
        print(line(point), file=sys.stderr, flush=True)


class Live(Quiet):
    """A spinner with the step and the time that it has taken, and above it the points so far."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._began = time.monotonic()
        self._status = self._console.status("starting")

    def step(self, said: str) -> None:
        elapsed = time.monotonic() - self._began
        self._status.update(f"{elapsed:4.0f} s  {said}")

    def point(self, point: Point) -> None:
        self._console.print(line(point), markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()


class JsonLines:
    """Prints each point to standard output as it comes, one JSON object a line, and passes everything on."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner

    def step(self, said: str) -> None:
        self._inner.step(said)

    def point(self, point: Point) -> None:
        print(json.dumps(point, ensure_ascii=False, allow_nan=False), flush=True)
        self._inner.point(point)

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)


def progress(*, as_json: bool, quiet: bool) -> Progress:
    """The one that fits where standard error goes."""
    shown: Progress = Quiet() if quiet else _shown()
    return JsonLines(shown) if as_json else shown


def _shown() -> Progress:
    if not sys.stderr.isatty():
        return Lines()
    try:
        return Live()
    except ImportError:  # Without the extra `cli`.
        return Lines()
