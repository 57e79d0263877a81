"""Proof for anybody: a checker of the contract that shares no code with what it judges, and a torture for it.

`check` judges the histories of actors and both databases. `recovery.testing.recording` has a queue and a receiver that
keep such a history; `recovery torture` is the command.
"""

from recovery.testing.checker import RULES, Place, Verdict, check
from recovery.testing.evidence import Evidence, Violation
from recovery.testing.history import DamagedHistory, History, Operation, in_folder, read_histories

__all__ = [
    "RULES",
    "DamagedHistory",
    "Evidence",
    "History",
    "Operation",
    "Place",
    "Verdict",
    "Violation",
    "check",
    "in_folder",
    "read_histories",
]
