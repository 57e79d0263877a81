"""What actors asked and were answered, in memory, in the form in which the checker of `recovery.testing` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recovery.testing.history import FAIL, OK, UNKNOWN, History, Operation, Pending


class Notes(History):
    """The history of one actor. It has no file, and no clock: the order is told by numbers."""

    def __init__(self, actor: str) -> None:
        self.actor = actor
        self.operations: dict[int, Operation] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.operations = {}

    def invoke(self, name: str, **asked: Any) -> Pending:
        pending = Pending(self, len(self.operations) + 1, name)
        self.operations[pending.number] = Operation(self.actor, pending.number, name, 0.0, asked)
        return pending

    def write(self, of: Pending, event: str, said: Mapping[str, Any]) -> None:
        assert event in (OK, FAIL, UNKNOWN)
        asked = self.operations[of.number].asked
        self.operations[of.number] = Operation(self.actor, of.number, of.name, 0.0, asked, event, 0.0, said)

    def close(self) -> None:
        """There is nothing to close."""
