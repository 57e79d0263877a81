"""What the contract says, written down a second time from its text, so that a checker judges by it and not by the code.

Nothing here is imported from the rest of `recovery`: a mistake there must not be repeated here.
"""

from __future__ import annotations

import hashlib
import json
from types import MappingProxyType
from typing import Any, Final

TASK: Final = "task"
REPLY: Final = "reply"
NEW: Final = "new"
HELD: Final = MappingProxyType({TASK: "running", REPLY: "sending"})
"""The state of a row that somebody holds."""

MOVES: Final = MappingProxyType(
    {
        TASK: {
            "new": {"pending", "expired", "hop_limit"},
            "pending": {"running", "cancelled", "expired"},
            "running": {"done", "failed", "cancelled", "expired", "pending"},
        },
        REPLY: {
            "new": {"pending"},
            "pending": {"sending"},
            "sending": {"sent", "pending", "dead"},
            "dead": {"pending", "sent"},
        },
    }
)
"""Sections 4 and 5. A state that is no key here is never left."""

ENDED: Final = frozenset({"done", "failed", "cancelled", "expired", "hop_limit"})
DEFAULT_MAX_HOPS: Final = 4


def canonical(value: Any) -> str:
    """Canonical JSON, section 1."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def sha256(text: str) -> str:
    """Lower-case hex SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()


def task_id(principal: str, message_id: str) -> str:
    """The task of a message."""
    return sha256(canonical([principal, message_id]))


def reply_id(task: str) -> str:
    """The reply of a task."""
    return f"reply:{task}"


def reply_bytes(task: str, state: str, result: Any) -> str:
    """What the reply of a task says: `result` is its result where it is done, else the reason."""
    return canonical({"kind": "result", "result": result, "status": state, "task_id": task})
