"""The line of writers at a SQLite file, seen from outside."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

FLOCK = struct.Struct("@hhqqi4x")
PATIENCE_SECONDS = 60.0


def places(path: str) -> list[int]:
    """The places that are taken in the line, the first one first."""
    descriptor = os.open(f"{path}-turns", os.O_RDWR)
    found: list[int] = []
    start = 0
    try:
        while True:
            asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, 0, 0)
            kind, _, taken, _, _ = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
            if kind == fcntl.F_UNLCK:
                return sorted(found)
            # The kernel tells of the longest standing one, which is the first.
            found.append(taken)
            start = taken + 1
    finally:
        os.close(descriptor)


def until(happened: Callable[[], bool]) -> None:
    """Wait for something to happen in another thread or process."""
    patience_ends = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < patience_ends, "it never happened"
        time.sleep(0.001)


def until_standing(path: str, count: int) -> None:
    """Wait for so many to stand in line, the one whose turn it is among them."""
    until(lambda: Path(f"{path}-turns").exists() and len(places(path)) == count)
