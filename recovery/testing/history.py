"""What an actor did, in its own words: one fsynced line before each operation and one after it.

A file belongs to one life of one process, and only it writes there. A line is a JSON object with `actor` (the name of
that life), `id` (the operation, unique within the life), `name` (the operation's), `event` (`invoke`, then one of
`ok`, `fail`, `unknown`), `at` (the host's clock, seconds since the epoch), and `said`: what was asked, or what was
answered. An invoke that nothing follows is an operation in whose middle the process died. Payloads and results are
never written: what stands for one is its hash.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

INVOKE: Final = "invoke"
OK: Final = "ok"
FAIL: Final = "fail"
UNKNOWN: Final = "unknown"
ENDINGS: Final = (OK, FAIL, UNKNOWN)
SUFFIX: Final = ".jsonl"
NOW: Final = time.time
"""The host's clock."""


class DamagedHistory(Exception):
    """A line other than the last cannot be read, or does not fit those before it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one actor: what it asked, how that ended (`unknown` where nobody heard), what was answered.

    `begun` and `ended` are the actor's clock in seconds since the epoch; `ended` is None where it never was.
    """

    actor: str
    number: int
    name: str
    begun: float
    asked: Mapping[str, Any]
    event: str = UNKNOWN
    ended: float | None = None
    answered: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.actor} operation {self.number} ({self.name}, {self.event})"


class History:
    """Writes the history of one life; a context manager. The file must not be there yet, and is made with mode 0600.

    `now` tells the time, in seconds since the epoch, also to an actor whose own clock is put wrong on purpose.
    """

    def __init__(self, path: Path, actor: str, now: Callable[[], float] = NOW) -> None:
        self.actor = actor
        self._now = now
        self._numbers = itertools.count(1)
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def invoke(self, name: str, **asked: Any) -> Pending:
        """Note that an operation is about to begin. On disk when this returns."""
        pending = Pending(self, next(self._numbers), name)
        self.write(pending, INVOKE, asked)
        return pending

    def write(self, of: Pending, event: str, said: Mapping[str, Any]) -> None:
        """Append one line and wait until it is on disk."""
        line = {"actor": self.actor, "id": of.number, "name": of.name, "event": event, "at": self._now(), "said": said}
        data = json.dumps(line).encode() + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file. What was begun and not ended stays unknown."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Pending:
    """An operation that was begun. One of its three endings is called, once."""

    history: History
    number: int
    name: str

    def ok(self, **answered: Any) -> None:
        """It was answered."""
        self.history.write(self, OK, answered)

    def fail(self, error: BaseException, **facts: Any) -> None:
        """It was refused, and surely changed nothing. Only the class of the error is kept."""
        self.history.write(self, FAIL, {"error": type(error).__name__, **facts})

    def unknown(self, error: BaseException) -> None:
        """Nobody knows whether it was done."""
        self.history.write(self, UNKNOWN, {"error": type(error).__name__})


def read_histories(paths: Iterable[Path]) -> list[Operation]:
    """Every operation of these files, in the order in which they were begun.

    A last line without its end is what a killed process was writing, and is left out. Raises DamagedHistory for
    any other line that is not whole.
    """
    found = itertools.chain.from_iterable(_read(path) for path in paths)
    return sorted(found, key=lambda one: (one.begun, one.actor, one.number))


def in_folder(folder: Path) -> list[Path]:
    """The histories in a folder."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def _read(path: Path) -> Iterator[Operation]:
    *lines, torn = path.read_bytes().split(b"\n")
    del torn  # Empty where the file ends with a whole line.
    begun: dict[int, Operation] = {}
    for number, line in enumerate(lines, 1):
        try:
            _take(begun, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedHistory(f"line {number} of {path.name}: {type(error).__name__}") from error
    yield from begun.values()


def _take(begun: dict[int, Operation], line: dict[str, Any]) -> None:
    number, event = line["id"], line["event"]
    if event == INVOKE:
        if number in begun:
            raise ValueError(number)
        begun[number] = Operation(line["actor"], number, line["name"], line["at"], line["said"])
        return
    before = begun[number]
    if event not in ENDINGS or before.ended is not None:
        raise ValueError(event)
    begun[number] = Operation(
        before.actor, number, before.name, before.begun, before.asked, event, line["at"], line["said"]
    )
