"""A message that is purged between the INSERT that met it and the SELECT that looks for it: it is new, and stored."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import StatementFailed
from recovery.repositories import inbox, receiving
from tests.contract.cells import TASK_IDS
from tests.plugins.queues import AUTH, envelope


@pytest.fixture
def purging(monkeypatch):
    """Purges a message just before it is looked for, `times` times; returns what was asked for each time."""

    def begin(name, times):
        asked = []

        def look(room, task_ids):
            asked.append(list(task_ids))
            if len(asked) <= times:
                purge(room, TASK_IDS[name])
            return receiving.stored(room, task_ids)

        monkeypatch.setattr(inbox, "stored", look)
        return asked

    return begin


def purge(room, task_id):
    """Delete what was stored of a message."""
    for table in (room.tables.tasks, room.tables.inbox):
        room.connection.execute(sa.delete(table).where(table.c.task_id == task_id))


def test_one_message(queue, purging):
    """It is stored once more, and no duplicate."""
    queue.receive(envelope("a"), AUTH)
    asked = purging("a", 1)
    ack = queue.receive(envelope("a"), AUTH)
    assert (TASK_IDS["a"], False) == (ack.task_id, ack.duplicate)
    assert [[TASK_IDS["a"]]] == asked
    assert TASK_IDS["a"] == queue.claim("w").task_id


def test_one_among_others(queue, purging):
    """The others are what they were: one that was new, and one that is a duplicate."""
    for name in ("a", "b"):
        queue.receive(envelope(name), AUTH)
    asked = purging("a", 2)
    acks = queue.receive_all([envelope(name) for name in ("a", "b", "c", "a")], AUTH)
    assert [False, True, False, True] == [ack.duplicate for ack in acks]
    assert [[TASK_IDS["a"], TASK_IDS["b"]]] == asked
    assert {TASK_IDS[name] for name in "abc"} == {claim.task_id for claim in queue.claim_batch("w", 5)}


def test_again_and_again(queue, stored, purging, monkeypatch):
    """After three times it is told to the sender, and nothing of the batch is stored."""
    queue.receive(envelope("a"), AUTH)
    before = stored.contents()
    asked = purging("a", 3)
    monkeypatch.setattr(inbox, "store", lambda _, given: {one.task_id for one in given} - {TASK_IDS["a"]})
    with pytest.raises(StatementFailed):
        queue.receive_all([envelope("a"), envelope("b")], AUTH)
    assert [[TASK_IDS["a"]]] * 3 == asked
    assert before == stored.contents()
