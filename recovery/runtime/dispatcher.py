"""A dispatcher: sends replies to one receiver until there are none, or until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery.messages import Dispatched
from recovery.queue import Queue
from recovery.runtime.looping import loop, owner_name
from recovery.runtime.stopping import Stop


class Dispatcher:
    """Delivers a queue's replies under one owner's name. A signal lets the delivery at hand end first."""

    def __init__(
        self,
        queue: Queue,
        receiver: Any,
        stop: Stop,
        *,
        owner: str | None = None,
        tell: Callable[[Dispatched], object] = lambda _: None,
    ) -> None:
        self._queue = queue
        self._receiver = receiver
        self._stop = stop
        self._owner = owner_name() if owner is None else owner
        self._tell = tell

    def run(self, *, drain: bool = False, once: bool = False) -> None:
        """Send until stopped; with `once` at most one reply; with `drain` until none is waiting or being sent."""
        loop(self._stop, self._one, self._is_open, drain=drain, once=once)

    def _one(self) -> bool:
        sent = self._queue.dispatch_once(self._receiver, self._owner)
        if sent is not None:
            self._tell(sent)
        return sent is not None

    def _is_open(self) -> bool:
        delivery = self._queue.counts().delivery
        return bool(delivery["pending"] or delivery["sending"])
