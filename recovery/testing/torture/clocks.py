"""Wrong clocks: one process of many believes in another time, in Python, and with libfaketime in its C libraries too.

libfaketime has to be loaded when a process starts, so a torture that wants it starts itself anew (`begin_again`). From
then on each process reads the shift of its own clock from an environment variable, also one that was forked.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

LIBRARIES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")
PRELOAD: Final = "LD_PRELOAD"
SHIFT: Final = "FAKETIME"
BESIDE: Final = {"FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
"""The shift is looked up each time; the clock by which waits are measured does not jump, as no machine's does."""
PYTHON_ALONE: Final = "clock jumps in C libraries: libfaketime is not on this machine, so only Python's clock jumps"


def library() -> Path | None:
    """Where libfaketime is, if it is anywhere that a Linux distribution puts it."""
    for pattern in LIBRARIES:
        for found in sorted(Path("/").glob(pattern.lstrip("/"))):
            return found
    return None


def is_faked(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started with libfaketime."""
    return "libfaketime" in environment.get(PRELOAD, "") and SHIFT in environment


def begin_again() -> None:
    """Start this very command anew with libfaketime, where there is one; once that is done, let sleeps be right."""
    if is_faked():
        # libfaketime moves the moment until which Python sleeps, though a clock tells it that was not to be moved.
        vars(time)["sleep"] = lambda seconds: select.select([], [], [], seconds)
        return
    found = library()
    if found is None:
        return
    preload = " ".join(filter(None, [str(found), os.environ.get(PRELOAD)]))
    environment = os.environ | BESIDE | {SHIFT: "+0", PRELOAD: preload}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - the same command


def without(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program that is none of the actors, such as a server: it keeps the host's clock."""
    if not is_faked(environment):
        return dict(environment)
    left = {name: value for name, value in environment.items() if not name.startswith(SHIFT)}
    return left | {PRELOAD: " ".join(one for one in environment[PRELOAD].split() if "libfaketime" not in one)}


def unmoved() -> Callable[[], float]:
    """The host's clock in seconds since the epoch, for as long as this process lives, whatever `shift` does to it."""
    if not is_faked():
        return time.time
    ahead = time.time() - time.monotonic()
    return lambda: time.monotonic() + ahead


def shift(seconds: float) -> None:
    """From now on let this process see another time; with libfaketime its C libraries see it as well.

    Waits stay as long as they were asked to be.
    """
    if not is_faked():
        right = time.time
        vars(time)["time"] = lambda: right() + seconds
        return
    os.environ[SHIFT] = f"{seconds:+g}"
