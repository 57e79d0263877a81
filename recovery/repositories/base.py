"""What every repository holds: a connection, the settings, and the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from recovery import backend, clock
from recovery.settings import Settings

T = TypeVar("T")


class Repository:
    """The verbs of one room over one Connection. It never begins, commits or retries.

    `kept` outlives a try: what a verb made of its arguments is made once, however often its transaction is tried.
    """

    def __init__(
        self, connection: sa.Connection, settings: Settings | None = None, kept: dict[str, Any] | None = None
    ) -> None:
        self.connection = connection
        self._kept = {} if kept is None else kept
        self.settings = settings = settings or Settings()
        self.tables = settings.tables
        self.backend = backend.of(connection)

    @property
    def hand(self) -> clock.Hand:
        """Who tells the time inside a statement."""
        return clock.by(self.backend, self.settings.clock)

    def hand_time(self) -> dict[str, float]:
        """The parameter `p_now` of a statement that does not read the server's clock."""
        return {} if self.hand == "server" else {"p_now": clock.read(self.connection, self.settings.clock)}

    def now(self) -> float:
        """The time in seconds since the epoch, read now: after whatever was locked before."""
        return clock.read(self.connection, self.settings.clock)

    def _once(self, name: str, make: Callable[[], T]) -> T:
        if name not in self._kept:
            self._kept[name] = make()
        made: T = self._kept[name]
        return made
