"""Every cell that a verb of replies and receipts changes, every field that it answers, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from recovery import Delivery, Receipt, Reconciled, Reply, Settlement, Verdict, states
from recovery.canonical import content_hash
from tests.contract.cells import DIFFERENT, FREE, REPLY_IDS, changed, name_of, new_reply, reply_move
from tests.plugins.queues import AUTH, envelope

OUTCOME_UNKNOWN = states.DELIVERY_LEASE_EXPIRED
STORED = "receipt stored"


@pytest.fixture
def queue(door, database_url, clock):
    """A queue all of whose numbers are different, so that none can stand for another."""
    return door.queue(database_url, clock=clock, **DIFFERENT)


@pytest.fixture
def waiting(queue, clock):
    """Three replies that are due, in this order, since 1000, 1001 and 1002; at 1003."""
    for name in ("a", "b", "c"):
        queue.receive(envelope(name), AUTH)
        queue.finish(queue.claim("w"), name)
        clock.advance(1)


@pytest.mark.usefixtures("waiting")
def test_what_is_claimed(queue, stored):
    """The delivery says what the row says, and so does the look at the replies."""
    rows = [new_reply(name, "done", f'"{name}"', 1000.0 + place) for place, name in enumerate("abc")]
    assert [Reply(**row) for row in rows] == queue.replies()
    assert [Reply(**rows[1])] == queue.replies(rows[1]["task_id"])
    assert [Reply(**row) for row in rows[:2]] == queue.replies(limit=2)
    before = stored.contents()
    held = {"state": "sending", "attempts": 1, "fence": 1, "owner": "d", "lease_until": 1023.0, "last_owner": "d"}
    deliveries = [queue.claim_reply("d"), *queue.claim_reply_batch("d", 1)]
    assert [Delivery(REPLY_IDS[n], "d", 1, 1, rows[i]["payload"], 1023.0) for i, n in enumerate("ab")] == deliveries
    assert {float} == {type(one.lease_until) for one in deliveries}
    assert {
        "outbox": {"a": held, "b": held},
        "journal": [reply_move(name, "sending", "claimed", 1003.0, was="pending") for name in "ab"],
    } == changed(before, stored.contents())
    assert [Reply(**(row | cells)) for row, cells in zip(rows, (held, held, {}), strict=True)] == queue.replies()


@pytest.mark.usefixtures("waiting")
def test_a_longer_lease(queue, clock, stored):
    """From now on, and nothing else."""
    held = queue.claim_reply("d")
    clock.advance(4)
    before = stored.contents()
    assert dataclasses.replace(held, lease_until=1027.0) == queue.renew_reply(held)
    assert {"outbox": {"a": {"lease_until": 1027.0}}} == changed(before, stored.contents())


SETTLED = {
    "delivered": (
        {"delivered": True, "error": "not said", "permanent": True},
        "sent",
        {**FREE, "settled_at": 1007.0},
        STORED,
    ),
    "later": (
        {"delivered": False, "error": "no"},
        "pending",
        {**FREE, "available_at": 1010.0, "last_error": "no"},
        "no",
    ),
    "later without a word": (
        {"delivered": False},
        "pending",
        {**FREE, "available_at": 1010.0, "last_error": "no reason given"},
        "no reason given",
    ),
    "never": (
        {"delivered": False, "error": "no", "permanent": True},
        "dead",
        {**FREE, "settled_at": 1007.0, "last_error": "no"},
        "no",
    ),
}


@pytest.mark.parametrize(("given", "state", "cells", "why"), SETTLED.values(), ids=SETTLED.keys())
@pytest.mark.usefixtures("waiting")
def test_an_outcome(queue, clock, stored, given, state, cells, why):
    """What became of a delivery, by itself."""
    held, _ = queue.claim_reply_batch("d", 2)
    clock.advance(4)
    before = stored.contents()
    assert state == queue.settle(held, **given)
    assert {
        "outbox": {"a": {**cells, "state": state}},
        "journal": [reply_move("a", state, why, 1007.0)],
    } == changed(before, stored.contents())


@pytest.mark.usefixtures("waiting")
def test_many_outcomes(queue, clock, stored):
    """What became of each of a batch, in any order; the last try of one of them failed, and it is dead."""
    first = queue.claim_reply("c")
    queue.settle(first, delivered=False, error="first")
    clock.advance(3)
    b, c, a = queue.claim_reply_batch("d", 3)
    clock.advance(4)
    before = stored.contents()
    given = [
        Settlement(c, delivered=True),
        Settlement(b, delivered=False, error="no"),
        Settlement(a, delivered=False),
    ]
    assert [
        Verdict(REPLY_IDS["c"], "sent"),
        Verdict(REPLY_IDS["b"], "pending"),
        Verdict(REPLY_IDS["a"], "dead"),
    ] == queue.settle_batch(given)
    assert {
        "outbox": {
            "a": {**FREE, "state": "dead", "settled_at": 1010.0, "last_error": "no reason given"},
            "b": {**FREE, "state": "pending", "available_at": 1013.0, "last_error": "no"},
            "c": {**FREE, "state": "sent", "settled_at": 1010.0},
        },
        "journal": [
            reply_move("c", "sent", STORED, 1010.0),
            reply_move("b", "pending", "no", 1010.0),
            reply_move("a", "dead", "no reason given", 1010.0, fence=2, attempt=2),
        ],
    } == changed(before, stored.contents())
    clock.advance(3)
    assert "sent" == queue.settle(queue.claim_reply("d"), delivered=True)
    assert [None] == [row["last_error"] for row in stored.rows("outbox") if row["reply_id"] == REPLY_IDS["b"]]


@pytest.mark.parametrize("way", ["reconcile", "claim_reply", "claim_reply_batch"])
@pytest.mark.usefixtures("waiting")
def test_what_is_due(queue, clock, stored, way):
    """A lease that is over is settled at that very moment: sent again, or dead where it was the last try."""
    first = queue.claim_reply("c")
    queue.settle(first, delivered=False, error="first")
    clock.advance(3)
    assert ["b", "c", "a"] == [name_of(one) for one in queue.claim_reply_batch("d", 3)]
    clock.advance(19.999)
    before = stored.contents()
    assert Reconciled(0, 0) == queue.reconcile()
    assert [] == queue.claim_reply_batch("e", 5)
    assert before == stored.contents()
    clock.advance(0.001)
    again = {"last_error": OUTCOME_UNKNOWN, "available_at": 1026.0}
    moves = [
        reply_move("a", "dead", OUTCOME_UNKNOWN, 1026.0, fence=2, attempt=2),
        reply_move("b", "pending", OUTCOME_UNKNOWN, 1026.0),
        reply_move("c", "pending", OUTCOME_UNKNOWN, 1026.0),
    ]
    cells = {
        "a": {**FREE, "state": "dead", "last_error": OUTCOME_UNKNOWN, "settled_at": 1026.0},
        "b": {**FREE, "state": "pending", **again},
        "c": {**FREE, "state": "pending", **again},
    }
    if way == "reconcile":
        assert Reconciled(0, 3) == queue.reconcile()
    else:
        taken = [queue.claim_reply("e")] if way == "claim_reply" else queue.claim_reply_batch("e", 5)
        held = {"owner": "e", "last_owner": "e", "lease_until": 1046.0, "fence": 2, "attempts": 2}
        assert (["b"] if way == "claim_reply" else ["b", "c"]) == [name_of(one) for one in taken]
        for one in taken:
            cells[name_of(one)] = held | again  # In the end it is sending, as it was.
            moves += [reply_move(name_of(one), "sending", "claimed", 1026.0, was="pending", owner="e", **TWICE)]
    found = changed(before, stored.contents())
    found["journal"].sort(key=str)
    assert {"outbox": cells, "journal": sorted(moves, key=str)} == found


TWICE = {"fence": 2, "attempt": 2}


@pytest.mark.usefixtures("waiting")
def test_twice_the_same_in_a_batch(queue, stored):
    """The first word counts; the second one is told what it came too late for."""
    held = queue.claim_reply("d")
    before = stored.contents()
    given = [Settlement(held, delivered=False, error="no"), Settlement(held, delivered=True)]
    first, second = queue.settle_batch(given)
    assert (Verdict(held.reply_id, "pending"), held.reply_id) == (first, second.identity)
    assert (None, "it is pending") == (second.state, second.error.why)
    assert {
        "outbox": {"a": {**FREE, "state": "pending", "available_at": 1006.0, "last_error": "no"}},
        "journal": [reply_move("a", "pending", "no", 1003.0)],
    } == changed(before, stored.contents())


@pytest.mark.usefixtures("waiting")
def test_without_settling(queue, clock, stored):
    """Where a claim is told not to settle, it takes what there is, and leaves alone what is due."""
    lost = queue.claim_reply_batch("d", 2)
    clock.advance(20)
    assert "c" == name_of(queue.claim_reply("e", settle=False))
    before = stored.contents()
    assert queue.claim_reply("e", settle=False) is None
    assert [] == queue.claim_reply_batch("e", 5, settle=False)
    assert before == stored.contents()
    assert [one.reply_id for one in lost] == [one.reply_id for one in queue.claim_reply_batch("e", 5)]


def test_a_receipt(receiver, clock, stored):
    """A receipt with the mark of its effect; again it changes nothing, and another one stands beside it."""
    before = stored.contents()
    assert Receipt("stored", "reply:1", duplicate=False) == receiver.accept("reply:1", '{"n":"\u00e9"}')
    clock.advance(5)
    assert Receipt("stored", "reply:1", duplicate=True) == receiver.accept("reply:1", '{"n":"\u00e9"}')
    assert Receipt("stored", "reply:2", duplicate=False) == receiver.accept("reply:2", "", insert)
    mark = content_hash('{"n":"\u00e9"}')
    assert {
        "new receipts": [
            {"reply_id": "reply:1", "content_hash": mark, "payload": '{"n":"\u00e9"}', "received_at": 1000.0},
            {"reply_id": "reply:2", "content_hash": content_hash(""), "payload": "", "received_at": 1005.0},
        ],
        "new effects": [
            {"reply_id": "reply:1", "applied_at": 1000.0},
            {"reply_id": "reply:2", "applied_at": 1005.0},
        ],
        "fence_floor": {1: {"floor": 7}},
    } == changed(before, stored.contents())
    assert ([True, True, False], 2) == ([receiver.seen(f"reply:{n}") for n in (1, 2, 3)], receiver.effect_count())


def insert(connection, *_):
    """Leave a trace in a table."""
    connection.execute(sa.text("UPDATE fence_floor SET floor = 7"))
