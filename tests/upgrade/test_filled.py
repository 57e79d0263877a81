"""A database of an older release that is full of rows: every one is kept, and the work goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from recovery import ManualClock, Queue, migrate
from recovery.schema import VERSION, tables
from tests.plugins.queues import AUTH, envelope
from tests.upgrade.interrupting import forks
from tests.upgrade.older import ADDED, REPLIES, TABLES, TASKS, Older, identity, older_message, older_task, to_older


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


def test_eight_processes_upgrade_it_at_once(older: Older, empty_url: str) -> None:
    """Eight processes that upgrade one full database at the same moment all succeed, and it is upgraded once."""
    before = older.contents()
    with forks().Pool(8) as pool:
        assert [VERSION] * 8 == pool.map(migrate, [empty_url] * 8)
    after = older.contents()
    assert [row | ADDED for row in before["tasks"]] == after["tasks"]
    assert {name: len(rows) for name, rows in before.items()} == {name: len(rows) for name, rows in after.items()}


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
