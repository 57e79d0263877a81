"""A database of an older release that is full of rows: every one is kept, and the work goes on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from recovery import ManualClock, Queue, migrate, open_engine
from recovery.canonical import canonical_json, fingerprint, reply_id, reply_text, task_id
from recovery.migrate import ladder
from recovery.schema import VERSION, tables
from tests.plugins.queues import AUTH, envelope

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


def to_older(url: str) -> None:
    """Climb the ladder as far as the older release goes."""
    config = Config()
    config.set_main_option("script_location", str(ladder()).replace("%", "%%"))
    config.attributes["url"] = url
    command.upgrade(config, OLDER)


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


@pytest.fixture
def older(empty_url: str) -> Iterator[Older]:
    """A filled database at the older step."""
    to_older(empty_url)
    found = Older(empty_url)
    found.fill()
    yield found
    found.engine.dispose()


def test_every_row_is_kept(older: Older, empty_url: str) -> None:
    """Upgrading keeps every cell of every table, and says `default` and 0 where nothing was said."""
    before = older.contents()
    assert (len(TASKS), len(REPLIES)) == (len(before["tasks"]), len(before["outbox"]))
    assert VERSION == migrate(empty_url)
    after = older.contents()
    before["tasks"] = [row | ADDED for row in before["tasks"]]
    for name in TABLES:
        assert before[name] == after[name], name


def test_the_catalog_is_the_metadata(older: Older, empty_url: str) -> None:
    """A database that was full ends in the constraints and indexes of the metadata; its keys still hold."""
    migrate(empty_url)
    look = sa.inspect(older.engine)
    for table in tables().metadata.tables.values():
        assert {str(i.name) for i in table.indexes} == {
            str(i["name"]) for i in look.get_indexes(table.name) if not i.get("duplicates_constraint")
        }
        wanted = {str(c.name) for c in table.constraints if isinstance(c, sa.CheckConstraint)}
        assert wanted == {str(check["name"]) for check in look.get_check_constraints(table.name)}
        assert len(table.foreign_keys) == len(look.get_foreign_keys(table.name))
    for statement in (
        "DELETE FROM inbox",
        "DELETE FROM tasks WHERE state = 'done'",
        "UPDATE tasks SET priority = 10",
        "UPDATE tasks SET queue = NULL",
    ):
        with pytest.raises(sa.exc.IntegrityError), older.engine.begin() as connection:
            connection.execute(sa.text(statement))


def test_the_work_goes_on(older: Older, empty_url: str) -> None:
    """What was pending is claimed in its order, what was held is held or lost as before, a replay is a duplicate."""
    migrate(empty_url)
    clock = ManualClock(1000.0)
    with Queue.open(empty_url, allowed_sources={"agent-a"}, clock=clock, backoff=2.0) as queue:
        assert queue.receive(envelope("pending"), AUTH).duplicate
        first = queue.claim("w")
        assert first is not None
        assert (identity("pending"), 6, {"n": 1}) == (first.task_id, first.fence, first.payload)
        assert queue.claim("w") is None
        held = queue.task(identity("running"))
        assert held is not None
        assert ("running", 3) == (held.state, held.fence)
        clock.advance(6)
        again = queue.finish_and_claim(first, 1)
        assert again is not None
        assert (identity("running"), 6, 2) == (again.task_id, again.fence, again.attempt)
        new = queue.receive(envelope("new", queue="mail", priority=9), AUTH).task_id
        assert [new] == [claim.task_id for claim in queue.claim_batch("w", 5, ("default", "mail"))]
        arrivals = [row["arrival"] for row in sorted(older.contents()["tasks"], key=lambda row: row["received_at"])]
        assert (len(arrivals), max(arrivals)) == (len(set(arrivals)), arrivals[-1])
        replies = queue.claim_reply_batch("d", 9)
        assert {"expired", "hop_limit", "failed", "done"} == {json.loads(one.payload)["status"] for one in replies}


def test_the_older_release_goes_on_storing(older: Older, empty_url: str) -> None:
    """A task that is stored without queue and priority, as the older release does, is claimed by the new one."""
    migrate(empty_url)
    older.put("inbox", **older_message("from the older one"))
    older.put("tasks", **older_task("from the older one", state="pending", available_at=1.0))
    with Queue.open(empty_url, allowed_sources={"agent-a"}, clock=ManualClock(1000.0)) as queue:
        held = queue.claim("w")
        assert held is not None
        task = queue.task(held.task_id)
        assert task is not None
        assert (identity("from the older one"), "default", 0) == (task.task_id, task.queue, task.priority)
        assert queue.receive(envelope("from the older one"), AUTH).duplicate
