"""What an older release stores: a database at its step and rows in every state, by statements of its own."""

from __future__ import annotations

import itertools
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from recovery import open_engine
from recovery.canonical import canonical_json, fingerprint, reply_id, reply_text, task_id
from recovery.migrate import ladder
from recovery.schema import tables

OLDER = "0001"
TABLES = ("inbox", "tasks", "outbox", "receipts", "effects", "journal", "fence_floor")
ADDED = {"queue": "default", "priority": 0}
TASKS: dict[str, dict[str, Any]] = {
    "pending": {"state": "pending"},
    "later": {
        "state": "pending",
        "attempts": 1,
        "fence": 1,
        "last_owner": "w",
        "available_at": 1500.5,
        "last_error": "x",
    },
    "running": {"state": "running", "attempts": 1, "fence": 3, "owner": "w", "last_owner": "w", "lease_until": 1005.25},
    "done": {
        "state": "done",
        "result": '{"\u00e9":1}',
        "ended_at": 900.125,
        "attempts": 2,
        "fence": 2,
        "last_owner": "w",
    },
    "failed": {"state": "failed", "reason": "no", "ended_at": 900.0, "attempts": 3, "fence": 3, "payload": None},
    "cancelled": {"state": "cancelled", "reason": "cancelled by scheduler", "ended_at": 901.0},
    "expired": {"state": "expired", "reason": "deadline reached", "ended_at": 902.0, "deadline": 902.0},
    "hop_limit": {"state": "hop_limit", "reason": "hop budget reached", "ended_at": 903.0, "hops": 2**31 - 1},
}
REPLIES: dict[str, dict[str, Any]] = {
    "done": {"state": "sent", "settled_at": 910.0, "attempts": 1, "fence": 1, "last_owner": "d", "payload": None},
    "failed": {"state": "sending", "owner": "d", "last_owner": "d", "lease_until": 1003.0, "attempts": 1, "fence": 1},
    "cancelled": {"state": "dead", "settled_at": 911.0, "attempts": 3, "fence": 3, "last_error": "refused"},
    "expired": {"state": "pending"},
    "hop_limit": {"state": "pending", "attempts": 2, "fence": 2},
}


def identity(name: str) -> str:
    """The task of the message of that name."""
    return task_id("agent-a", name)


def config_of(url: str) -> Config:
    """What Alembic needs to know to climb the ladder at a database."""
    config = Config()
    config.set_main_option("script_location", str(ladder()).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def to_older(url: str) -> None:
    """Climb the ladder as far as the older release goes."""
    command.upgrade(config_of(url), OLDER)


def older_task(name: str, **changes: Any) -> dict[str, Any]:
    """A task as the older release stored it: it names neither queue nor priority."""
    whole = {"deadline": 2000.0, "hops": 0, "max_attempts": 3, "attempts": 0, "fence": 0, "payload": '{"n":1}'}
    return whole | {"task_id": identity(name), "available_at": 800.0, "received_at": 800.0} | changes


def older_message(name: str) -> dict[str, Any]:
    """An inbox row as the older release stored it."""
    known: dict[str, Any] = {"deadline": 2000.0, "hops": 0, "kind": "task", "max_attempts": 3, "message_id": name}
    mark = fingerprint(payload='{"n":1}', sender="agent-a", **known)
    return {"task_id": identity(name), "principal": "agent-a", "message_id": name, "kind": "task", "fingerprint": mark}


def older_reply(name: str, **changes: Any) -> dict[str, Any]:
    """A reply as the older release stored it."""
    task = TASKS[name]
    said = task.get("result") or canonical_json(task["reason"])
    whole = {"reply_id": reply_id(identity(name)), "task_id": identity(name), "status": task["state"]}
    whole |= {"payload": reply_text(identity(name), task["state"], said), "max_attempts": 3, "attempts": 0, "fence": 0}
    return whole | {"available_at": 900.0, "created_at": 900.0} | changes


class Older:
    """A database at the older step, seen and filled by statements of its own."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)
        self._numbers = itertools.count(1)

    def put(self, name: str, **row: Any) -> None:
        """Insert one row; where the database does not number arrivals by itself, it is done here."""
        table = getattr(tables(), name)
        found = {column["name"]: column for column in sa.inspect(self.engine).get_columns(name)}
        if "arrival" in found and not found["arrival"].get("identity"):
            row["arrival"] = next(self._numbers)
        names = ", ".join(row)
        with self.engine.begin() as connection:
            values = ", ".join(f":{column}" for column in row)
            connection.execute(sa.text(f"INSERT INTO {table.name} ({names}) VALUES ({values})"), row)

    def fill(self) -> None:
        """Rows in every state, with everything that refers to them."""
        for name, changes in TASKS.items():
            self.put("inbox", **older_message(name))
            self.put("tasks", **older_task(name, **changes))
            self.put("journal", at=800.0, task_id=identity(name), subject="task", from_state="new",
                     to_state="pending", owner=None, fence=0, attempt=0, why="received")  # fmt: skip
        for name, changes in REPLIES.items():
            self.put("outbox", **older_reply(name, **changes))
        self.put("receipts", reply_id="r-1", content_hash="h", payload="p", received_at=700.0)
        self.put("effects", reply_id="r-1", applied_at=700.0)
        with self.engine.begin() as connection:
            connection.execute(sa.update(tables().fence_floor).values(floor=5))

    def contents(self) -> dict[str, list[dict[str, Any]]]:
        """Every row, cell by cell."""
        with self.engine.connect() as connection:
            return {
                name: [dict(row) for row in connection.execute(sa.text(f"SELECT * FROM {name} ORDER BY 1")).mappings()]
                for name in TABLES
            }


def fill(url: str) -> None:
    """Make a database at the older step that has rows in every state."""
    to_older(url)
    made = Older(url)
    made.fill()
    made.engine.dispose()
