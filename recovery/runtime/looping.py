"""The loop that workers and dispatchers share: when to go on, when to wait, when to end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from recovery.runtime.pacing import idle_seconds
from recovery.runtime.stopping import Stop


def loop(stop: Stop, one: Callable[[], bool], is_open: Callable[[], bool], *, drain: bool, once: bool) -> None:
    """Call `one` until stopped; it says whether there was something to do.

    With `once` it is called once; with `drain` the loop ends when there was nothing to do and nothing `is_open`.
    """
    empty = 0
    while not stop.wanted:
        if one():
            empty = 0
        elif drain and not is_open():
            return
        elif not once:
            empty += 1
            stop.sleep(idle_seconds(empty))
        if once:
            return


def owner_name() -> str:
    """Who holds what this process claims, where nobody gave it a name."""
    return f"{socket.gethostname()[:64]}-{os.getpid()}"
