"""A history that also counts, for whoever watches, and knows what is being done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recovery.testing.history import FAIL, INVOKE, OK, UNKNOWN, History, Pending
from recovery.testing.torture.clocks import unmoved
from recovery.testing.torture.tally import Tally


class Diary(History):
    """The history of one life of an actor; `row` is the actor's in the tally."""

    def __init__(self, path: Path, life: str, tally: Tally, row: int) -> None:
        super().__init__(path, life, unmoved())
        self.tally = tally
        self.row = row
        self.doing = ""

    def write(self, of: Pending, event: str, said: Mapping[str, Any]) -> None:
        super().write(of, event, said)
        if event == INVOKE:
            self.doing = of.name
            return
        self.tally.add(self.row, "operations")
        if event == OK and of.name == "receive" and not said["duplicate"]:
            self.tally.add(self.row, "acknowledged")
        if event == FAIL and said["error"] == "Fenced":
            self.tally.add(self.row, "fenced")
        if event == UNKNOWN:
            self.tally.add(self.row, "unknown")
