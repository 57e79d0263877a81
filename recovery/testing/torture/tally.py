"""Counters that outlive the processes which count: one page of shared memory, a row for each actor."""

from __future__ import annotations

import mmap
import struct
from typing import Final

NAMES: Final = ("operations", "acknowledged", "fenced", "unknown", "cuts", "commits", "number", "open", "jumps")
ROWS_MAX: Final = 64
_SIZE: Final = 8


class Tally:
    """A table of whole numbers. Made before the processes are forked; each row has one writer."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, (1 + ROWS_MAX * len(NAMES)) * _SIZE)

    def add(self, row: int, name: str, count: int = 1) -> None:
        """Count."""
        self.put(row, name, self.get(row, name) + count)

    def put(self, row: int, name: str, value: int) -> None:
        """Set one number."""
        struct.pack_into("q", self._memory, _place(row, name), value)

    def get(self, row: int, name: str) -> int:
        """One number."""
        found: int = struct.unpack_from("q", self._memory, _place(row, name))[0]
        return found

    def total(self, name: str) -> int:
        """The sum over all actors."""
        return sum(self.get(row, name) for row in range(ROWS_MAX))

    @property
    def calm(self) -> bool:
        """Whether the faults are over: from then on no answer is lost and nobody dies."""
        return bool(self._memory[0])

    def be_calm(self) -> None:
        """End all faults that the actors make themselves."""
        self._memory[0] = 1


def _place(row: int, name: str) -> int:
    if not 0 <= row < ROWS_MAX:
        raise IndexError(row)
    return (1 + row * len(NAMES) + NAMES.index(name)) * _SIZE
