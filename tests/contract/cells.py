"""What a verb changed: every cell that is another one than before, every row that is new, and nothing else."""

from __future__ import annotations

from typing import Any

from recovery.canonical import reply_id, task_id
from tests.plugins.queues import SOURCES

DIFFERENT: dict[str, Any] = {
    "allowed_sources": SOURCES,
    "lease_seconds": 30,
    "delivery_lease_seconds": 20,
    "backoff": 2,
    "delivery_backoff": 3,
    "max_hops": 5,
    "delivery_attempts": 2,
}
"""Settings all of whose numbers are different, so that none can stand for another."""
NAMES = ("a", "b", "c", "d")
TASK_IDS = {name: task_id("agent-a", name) for name in NAMES}
REPLY_IDS = {name: reply_id(TASK_IDS[name]) for name in NAMES}
_KNOWN = {found: name for ids in (TASK_IDS, REPLY_IDS) for name, found in ids.items()}
FREE = {"owner": None, "lease_until": None}
"""What a row has that nobody holds."""
MOVED = ("at", "task_id", "subject", "from_state", "to_state", "owner", "fence", "attempt", "why")


def name_of(held):
    """The name of what a claim or a delivery is of; None where nothing was to be had."""
    return None if held is None else _KNOWN[held.task_id if hasattr(held, "task_id") else held.reply_id]


def changed(before, after):
    """The cells of each row that are different, by table and name; new rows whole, in order of arrival."""
    found: dict[str, Any] = {}
    for table, rows in after.items():
        old = {next(iter(row.values())): row for row in before[table]}
        assert old.keys() <= {next(iter(row.values())) for row in rows}
        for row in sorted(rows, key=lambda row: row.get("arrival", 0)):
            key = next(iter(row.values()))
            if table == "journal":
                if key not in old:
                    found.setdefault(table, []).append(move(row))
            elif key not in old:
                found.setdefault(f"new {table}", []).append({n: v for n, v in row.items() if n != "arrival"})
            elif row != old[key]:
                cells = {name: value for name, value in row.items() if value != old[key][name]}
                found.setdefault(table, {})[_KNOWN.get(key, key)] = cells
    return found


def move(row):
    """A row of the journal, with the name of its task."""
    cells = [row[name] for name in MOVED]
    return (cells[0], _KNOWN[cells[1]], *cells[2:])


def new_reply(name, status, said, at):
    """The row of a reply that nobody has sent yet; `said` is its result or reason as JSON."""
    text = f'{{"kind":"result","result":{said},"status":"{status}","task_id":"{TASK_IDS[name]}"}}'
    return {
        "reply_id": REPLY_IDS[name],
        "task_id": TASK_IDS[name],
        "status": status,
        "payload": text,
        "state": "pending",
        "max_attempts": 2,
        "attempts": 0,
        "fence": 0,
        "available_at": at,
        "owner": None,
        "lease_until": None,
        "last_owner": None,
        "last_error": None,
        "created_at": at,
        "settled_at": None,
    }


def replied(name, status, at):
    """What the journal says of a reply that is new."""
    return (at, name, "reply", "new", "pending", None, 0, 0, f"task {status}")


def task_move(name, target, why, at, *, was="running", owner="w", fence=1, attempt=1):
    """What the journal says of a move of a task."""
    return (at, name, "task", was, target, owner, fence, attempt, why)


def reply_move(name, target, why, at, *, was="sending", owner="d", fence=1, attempt=1):
    """What the journal says of a move of a reply."""
    return (at, name, "reply", was, target, owner, fence, attempt, why)
