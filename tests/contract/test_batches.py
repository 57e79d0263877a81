"""Many in one transaction: messages, claims that end, deliveries that are settled; each item gets its own answer."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import Claim, Fenced, InvalidEnvelope, PayloadCollision, Settlement, StatementFailed, Verdict
from recovery.canonical import reply_id
from recovery.schema import tables
from tests.plugins.queues import AUTH, envelope

LATE = "36bc491164255afd4b72e0d028cbf60bd047a0ad316b862e2e7de23423c2ba5e"
FAR = "b3cd06035d53addadb311c7003936568b515d283d5de63f77d6424373125dfba"
"""The tasks of agent-a's messages `late` and `far`."""


def sent(queue, /, *message_ids, **changes):
    """The task ids of messages that were stored."""
    return [queue.receive(envelope(message_id, **changes), AUTH).task_id for message_id in message_ids]


def held(queue, /, *message_ids, **changes):
    """Claims of tasks that were just stored."""
    sent(queue, *message_ids, **changes)
    return queue.claim_batch("w", len(message_ids))


def deliveries(queue, *message_ids):
    """Deliveries of replies to tasks that were just stored and cancelled."""
    for task_id in sent(queue, *message_ids):
        queue.cancel(task_id)
    return queue.claim_reply_batch("d", len(message_ids))


def told(verdicts):
    """Verdicts as (state, class of the error, why)."""
    return [(one.state, type(one.error).__name__, getattr(one.error, "why", None)) for one in verdicts]


def moves(stored, since=0):
    """The journal from a row on, as (at, task, subject, from, to, owner, fence, attempt, why)."""
    return [tuple(row.values())[1:] for row in stored.rows("journal")[since:]]


def short(stored, since=0):
    """The journal from a row on, as (message, subject, from, to)."""
    names = {row["task_id"]: row["message_id"] for row in stored.rows("inbox")}
    return [(names[task_id], *rest[:3]) for _, task_id, *rest in moves(stored, since)]


OK = "NoneType"
NO_DELIVERY: Any = "reply"


# finish_batch


def test_finish_batch(queue, stored):
    """Every claim is ended with its result, its reply and its journal rows, in the order given."""
    claims = held(queue, "a", "b", "c")
    since = len(stored.rows("journal"))
    results = [{"b": 1, "a": [None, "\u00e9"]}, None, 2.5]
    order = [2, 0, 1]
    verdicts = queue.finish_batch([(claims[index], results[index]) for index in order])
    assert [Verdict(claims[index].task_id, "done") for index in order] == verdicts
    assert [True] * 3 == [one.ok for one in verdicts]
    assert ['{"a":[null,"\u00e9"],"b":1}', "null", "2.5"] == [queue.task(claim.task_id).result for claim in claims]
    assert [claims[index].task_id for index in order] == [reply.task_id for reply in queue.replies()]
    for claim, result in zip(claims, results, strict=True):
        expected = {"kind": "result", "result": result, "status": "done", "task_id": claim.task_id}
        assert expected == json.loads(queue.replies(claim.task_id)[0].payload)
    expected_moves = []
    for index in order:
        task = (1000.0, claims[index].task_id)
        expected_moves += [
            (*task, "task", "running", "done", "w", 1, 1, "finished"),
            (*task, "reply", "new", "pending", None, 0, 0, "task done"),
        ]
    assert expected_moves == moves(stored, since)


def test_finish_batch_leaves_what_finish_leaves(queue, stored):
    """A batch of one leaves the row and the reply that finish leaves, but for the names."""
    one, two = held(queue, "a", "b")
    queue.finish(one, {"n": 1})
    assert queue.finish_batch(iter([(two, {"n": 1})]))[0].ok
    for name in ("tasks", "outbox"):
        rows = {row["task_id"]: row for row in stored.rows(name)}
        differing = {"task_id", "arrival", "reply_id"} | ({"payload"} if name == "outbox" else set())
        first, second = (
            {k: v for k, v in rows[one.task_id if n == 0 else two.task_id].items() if k not in differing}
            for n in (0, 1)
        )
        assert first == second


def test_an_empty_batch(queue, stored):
    """An empty batch has no verdicts and writes nothing."""
    before = stored.contents()
    assert ([], [], []) == (queue.finish_batch([]), queue.settle_batch(iter(())), queue.receive_all([], AUTH))
    assert before == stored.contents()


def test_each_item_has_its_own_verdict(queue, clock, stored):
    """A claim that is lost or made up is refused, each for its own reason; the others are stored all the same."""
    names = ["good", "again", "cancelled", "reclaimed", "foreign", "released", "late", "twice"]
    at = dict(zip(names, held(queue, *names, max_attempts=5), strict=True))
    queue.finish(at["again"], "known")
    queue.cancel(at["cancelled"].task_id)
    queue.release(at["released"])
    queue.release(at["reclaimed"])
    both = {claim.task_id: claim for claim in queue.claim_batch("v", 2)}
    queue.release(both[at["released"].task_id])
    change = sa.update(tables().tasks).where(tables().tasks.c.task_id == at["late"].task_id).values(deadline=1000.0)
    with stored.engine.begin() as connection:
        connection.execute(change)
    since = len(stored.rows("journal"))
    items = [
        ("good", at["good"], 1, ("done", OK, None)),
        ("again", at["again"], "known", ("done", OK, None)),
        ("again", at["again"], "other", (None, "Fenced", "it is done")),
        ("cancelled", at["cancelled"], 1, (None, "Fenced", "it is cancelled")),
        ("reclaimed", at["reclaimed"], 1, (None, "Fenced", "it was claimed again since")),
        ("foreign", dataclasses.replace(at["foreign"], owner="v"), 1, (None, "Fenced", "somebody else holds it")),
        ("released", at["released"], 1, (None, "Fenced", "it is pending")),
        ("late", at["late"], 1, (None, "Fenced", "its deadline is over")),
        ("unknown", dataclasses.replace(at["good"], task_id="unknown"), 1, (None, "Fenced", "there is no such row")),
        ("bad result", at["foreign"], float("nan"), (None, "InvalidEnvelope", None)),
        ("twice", at["twice"], 1, ("done", OK, None)),
        ("twice", at["twice"], 1, ("done", OK, None)),
        ("twice", at["twice"], 2, (None, "Fenced", "it is done")),
        ("not a claim", "claim", 1, (None, "InvalidEnvelope", None)),
        ("none", None, 1, (None, "InvalidEnvelope", None)),
    ]
    verdicts = queue.finish_batch([(claim, result) for _, claim, result, _ in items])
    assert [expected for *_, expected in items] == told(verdicts)
    assert [expected[0] is not None for *_, expected in items] == [one.ok for one in verdicts]
    kept = [
        (claim, one)
        for (_, claim, *_), one in zip(items, verdicts, strict=True)
        if one.ok or isinstance(one.error, Fenced)
    ]
    assert [claim.task_id for claim, _ in kept] == [one.identity for _, one in kept]
    done = [("good", "task", "running", "done"), ("good", "reply", "new", "pending")]
    twice = [("twice", "task", "running", "done"), ("twice", "reply", "new", "pending")]
    assert done + twice == short(stored, since)
    assert "running" == queue.task(at["foreign"].task_id).state
    assert (2, "v") == (queue.task(at["reclaimed"].task_id).fence, queue.task(at["reclaimed"].task_id).owner)


def test_refused_items_change_nothing(queue, clock, stored):
    """A batch in which every item is refused writes nothing at all."""
    claims = held(queue, "a", "b")
    clock.advance(10)
    before = stored.contents()
    verdicts = queue.finish_batch([(claim, 1) for claim in claims] * 2)
    assert [(None, "Fenced", "its lease is over")] * 4 == told(verdicts)
    assert before == stored.contents()


@pytest.mark.parametrize(
    ("seconds", "expected"), [(9.999, ("done", OK, None)), (10, (None, "Fenced", "its lease is over"))]
)
def test_finish_batch_at_the_boundary(queue, clock, seconds, expected):
    """At the very moment of lease_until a claim is over, just before it holds; in a batch as alone."""
    claims = held(queue, "a")
    clock.advance(seconds)
    assert [expected] == told(queue.finish_batch([(claims[0], 1)]))


def test_finish_batch_at_the_deadline(queue, clock):
    """At the very moment of the deadline a claim is over, and only that one."""
    late, good = held(queue, "late", deadline=1005.0) + held(queue, "good")
    clock.advance(5)
    expected = [(None, "Fenced", "its deadline is over"), ("done", OK, None)]
    assert expected == told(queue.finish_batch([(late, 1), (good, 1)]))


FENCES = [-1, 0, 2, 2**31, 2**63 - 1, 2**63, 2**70, -(2**70), "1", None, 1.5, float("nan"), [1]]
OWNERS = ["", "W", "w ", "w\0", "\ud800", None, 5, ["w"], "w" * 129]
TASKS: list[Any] = ["", "unknown", "a\0b", "\ud800", None, 5, ["x"], {}, "x" * 200]


def test_what_was_made_up_is_fenced(queue, stored):
    """A claim with any other owner, fence or id is refused by itself, whatever it holds; the good one is stored."""
    bad, good = held(queue, "bad", "good")
    made_up = (
        [dataclasses.replace(bad, fence=fence) for fence in FENCES]
        + [dataclasses.replace(bad, owner=owner) for owner in OWNERS]
        + [dataclasses.replace(bad, task_id=task_id) for task_id in TASKS]
    )
    before = stored.contents()
    for claim in made_up:
        with pytest.raises(Fenced):
            queue.finish(claim, 1)
    assert before == stored.contents()
    verdicts = queue.finish_batch([*((claim, 1) for claim in made_up), (good, 1)])
    assert ["Fenced"] * len(made_up) + [OK] == [type(one.error).__name__ for one in verdicts]
    assert ("running", "done") == (queue.task(bad.task_id).state, queue.task(good.task_id).state)


def test_what_was_made_up_is_fenced_for_deliveries(queue, stored):
    """The same for deliveries."""
    bad, good = deliveries(queue, "bad", "good")
    made_up = (
        [dataclasses.replace(bad, fence=fence) for fence in FENCES]
        + [dataclasses.replace(bad, owner=owner) for owner in OWNERS]
        + [dataclasses.replace(bad, reply_id=identity) for identity in TASKS]
    )
    before = stored.contents()
    for delivery in made_up:
        with pytest.raises(Fenced):
            queue.settle(delivery, delivered=True)
    assert before == stored.contents()
    verdicts = queue.settle_batch([Settlement(one, delivered=True) for one in [*made_up, good]])
    assert ["Fenced"] * len(made_up) + [OK] == [type(one.error).__name__ for one in verdicts]
    assert {"sending", "sent"} == {reply.state for reply in queue.replies()}


def test_a_bool_is_no_fence(queue, stored):
    """True is 1 in Python, but no fence that a claim ever had."""
    (claim,), (delivery,) = held(queue, "a"), deliveries(queue, "b")
    assert (1, 1) == (claim.fence, delivery.fence)
    before = stored.contents()
    for fence in (True, 1.0):
        with pytest.raises(Fenced):
            queue.finish(dataclasses.replace(claim, fence=fence), 1)
        with pytest.raises(Fenced):
            queue.settle(dataclasses.replace(delivery, fence=fence), delivered=True)
        with pytest.raises(Fenced):
            queue.renew(dataclasses.replace(claim, fence=fence))
    assert before == stored.contents()


@pytest.mark.parametrize("items", [[5], ["ab"], [[1, 2]], [(1,)], [(1, 2, 3)], [None]], ids=ascii)
def test_what_is_no_pair_is_refused_whole(queue, stored, items):
    """An item that is no pair is the caller's mistake: the batch is refused, and nothing is stored."""
    claims = held(queue, "a")
    before = stored.contents()
    with pytest.raises(InvalidEnvelope) as caught:
        queue.finish_batch([(claims[0], 1), *items])
    assert ("items", before) == (caught.value.field, stored.contents())


def test_too_many_items_are_refused_whole(queue, stored):
    """10,001 items are refused before anything is stored, however long the rest is."""
    (claim,), (delivery,) = held(queue, "a"), deliveries(queue, "b")
    before = stored.contents()
    for verb, item in (("finish_batch", (claim, 1)), ("settle_batch", Settlement(delivery, delivered=True))):
        with pytest.raises(InvalidEnvelope) as caught:
            getattr(queue, verb)(itertools.repeat(item))
        assert ("items", 10_000) == (caught.value.field, caught.value.limit)
    endless = (envelope(f"m-{number}") for number in itertools.count())
    with pytest.raises(InvalidEnvelope) as caught:
        queue.receive_all(endless, AUTH)
    assert ("envelopes", 10_000) == (caught.value.field, caught.value.limit)
    assert before == stored.contents()


def test_a_source_that_raises_stores_nothing(queue, stored):
    """What an iterator raises comes through as it is, and nothing of the batch is stored."""
    (claim,), (delivery,) = held(queue, "a"), deliveries(queue, "b")
    before = stored.contents()

    def source(item):
        yield item
        raise OSError("gone")

    for call in (
        lambda: queue.finish_batch(source((claim, 1))),
        lambda: queue.settle_batch(source(Settlement(delivery, delivered=True))),
        lambda: queue.receive_all(source(envelope("c")), AUTH),
    ):
        with pytest.raises(OSError, match="gone"):
            call()
    assert before == stored.contents()


def test_the_batch_is_one_transaction(queue, stored):
    """Where the database refuses one row of a batch, nothing of the batch is stored."""
    claims = held(queue, "a", "b", "c")
    outbox = tables().outbox
    taken = {"task_id": claims[1].task_id, "reply_id": reply_id(claims[1].task_id), "status": "done", "state": "sent"}
    more = {"max_attempts": 3, "attempts": 0, "fence": 0, "available_at": 0.0, "created_at": 0.0, "settled_at": 0.0}
    counted = {"arrival": 77} if "arrival" in _needed(stored, "outbox") else {}
    with stored.engine.begin() as connection:
        connection.execute(sa.insert(outbox).values(**taken, **more, **counted))
    before = stored.contents()
    with pytest.raises(StatementFailed):
        queue.finish_batch([(claim, 1) for claim in claims])
    assert before == stored.contents()


def _needed(stored, name):
    """The columns of a table that an INSERT has to name."""
    columns = sa.inspect(stored.engine).get_columns(name)
    return {column["name"] for column in columns if not column["nullable"] and not column.get("identity")}


def test_a_large_batch(queue):
    """Thousands go through, and one that was made up costs the others nothing: what is done grows with the items."""
    count = 2_000
    acks = queue.receive_all((envelope(f"m-{number}") for number in range(count)), AUTH)
    claims = queue.claim_batch("w", count)
    assert [ack.task_id for ack in acks] == [claim.task_id for claim in claims]
    claims[1000] = dataclasses.replace(claims[1000], fence=-1)
    verdicts = queue.finish_batch((claim, number) for number, claim in enumerate(claims))
    replies = queue.claim_reply_batch("d", count)
    settled = queue.settle_batch(Settlement(reply, delivered=True) for reply in replies)
    assert [1000] == [index for index, one in enumerate(verdicts) if not one.ok]
    assert (count - 1, {"sent"}) == (len(settled), {one.state for one in settled})
    assert (count - 1, 1) == (queue.counts().delivery["sent"], queue.counts().open["running"])


# settle_batch and claim_reply_batch


def test_claim_reply_batch(queue, clock):
    """Replies come in the order in which they became due, up to the limit and never more, each with its own lease."""
    for task_id in sent(queue, "a", "b", "c", "d"):
        queue.cancel(task_id)
        clock.advance(1)
    expected = [reply.reply_id for reply in queue.replies()]
    first = queue.claim_reply_batch("d", 3)
    assert expected[:3] == [one.reply_id for one in first]
    assert {("d", 1, 1, 1014.0)} == {(one.owner, one.fence, one.attempt, one.lease_until) for one in first}
    assert [reply.payload for reply in queue.replies()][:3] == [one.payload for one in first]
    assert expected[3:] == [one.reply_id for one in queue.claim_reply_batch("e", 10_000)]
    assert [] == queue.claim_reply_batch("d", 1)
    for limit in (0, -1, 10_001, True, 1.0, None):
        with pytest.raises(InvalidEnvelope):
            queue.claim_reply_batch("d", limit)
    with pytest.raises(InvalidEnvelope):
        queue.claim_reply_batch("", 1)


def test_claim_reply_batch_settles_first(queue, clock):
    """Deliveries whose lease ended go back before replies are picked, and are picked again."""
    deliveries(queue, "a", "b")
    clock.advance(10)
    again = queue.claim_reply_batch("e", 5)
    assert {("e", 2, 2)} == {(one.owner, one.fence, one.attempt) for one in again}


def test_settle_batch(queue, clock, stored):
    """Each delivery becomes what is said of it: sent, to be tried again after the backoff, or dead."""
    names = ["sent", "again", "silent", "dead", "twice", "reclaimed", "gone", "foreign"]
    at = dict(zip(names, deliveries(queue, *names), strict=True))
    outbox = tables().outbox
    with stored.engine.begin() as connection:
        connection.execute(sa.delete(outbox).where(outbox.c.reply_id == at["gone"].reply_id))
        change = {"fence": 2, "owner": "e"}
        connection.execute(sa.update(outbox).where(outbox.c.reply_id == at["reclaimed"].reply_id).values(**change))
    since = len(stored.rows("journal"))
    items = [
        (Settlement(at["dead"], delivered=False, error="no\0", permanent=True), ("dead", OK, None)),
        (Settlement(at["sent"], delivered=True, error="unused", permanent=True), ("sent", OK, None)),
        (Settlement(at["again"], delivered=False, error=OSError("later")), ("pending", OK, None)),
        (Settlement(at["silent"], delivered=False), ("pending", OK, None)),
        (Settlement(at["twice"], delivered=True), ("sent", OK, None)),
        (Settlement(at["twice"], delivered=True), (None, "Fenced", "it is sent")),
        (Settlement(at["again"], delivered=True), (None, "Fenced", "it is pending")),
        (Settlement(at["reclaimed"], delivered=True), (None, "Fenced", "it was claimed again since")),
        (Settlement(at["gone"], delivered=True), (None, "Fenced", "there is no such row")),
        (
            Settlement(dataclasses.replace(at["foreign"], owner="e"), delivered=True),
            (None, "Fenced", "somebody else holds it"),
        ),
        (Settlement(NO_DELIVERY, delivered=True), (None, "InvalidEnvelope", None)),
        (at["foreign"], (None, "InvalidEnvelope", None)),
        (None, (None, "InvalidEnvelope", None)),
    ]
    verdicts = queue.settle_batch([item for item, _ in items])
    assert [expected for _, expected in items] == told(verdicts)
    assert [at[name].reply_id for name in ("dead", "sent", "again")] == [one.identity for one in verdicts[:3]]
    rows = {name: next(row for row in queue.replies() if row.reply_id == at[name].reply_id) for name in names[:5]}
    assert ("no\\x00", 1000.0, 1000.0) == _settled(rows["dead"])
    assert (None, 1000.0, 1000.0) == _settled(rows["sent"])
    assert ("no reason given", 1002.0, None) == _settled(rows["silent"])
    assert (1002.0, None) == _settled(rows["again"])[1:]
    expected = [
        (name, "reply", "sending", state)
        for name, state in (
            ("dead", "dead"),
            ("sent", "sent"),
            ("again", "pending"),
            ("silent", "pending"),
            ("twice", "sent"),
        )
    ]
    assert expected == short(stored, since)
    assert [("d", 1, 1)] * 5 == [row[5:8] for row in moves(stored, since)]
    assert ["no\\x00", "receipt stored", rows["again"].last_error, "no reason given", "receipt stored"] == [
        row[8] for row in moves(stored, since)
    ]


def _settled(reply):
    return reply.last_error, reply.available_at, reply.settled_at


def test_settle_batch_spends_the_budget(queue, clock):
    """On the last attempt a temporary error is the end, in a batch as alone."""
    last = deliveries(queue, "a")
    for _ in range(2):
        clock.advance(10)
        last = queue.claim_reply_batch("d", 1)
    assert [("dead", OK, None)] == told(queue.settle_batch([Settlement(last[0], delivered=False, error="no")]))


@pytest.mark.parametrize(
    ("seconds", "expected"), [(9.999, ("sent", OK, None)), (10, (None, "Fenced", "its lease is over"))]
)
def test_settle_batch_at_the_boundary(queue, clock, stored, seconds, expected):
    """At the very moment of lease_until a delivery is over, just before it holds."""
    (one,) = deliveries(queue, "a")
    clock.advance(seconds)
    before = stored.contents()
    assert [expected] == told(queue.settle_batch([Settlement(one, delivered=True)]))
    assert (before == stored.contents()) == (expected[0] is None)


# finish_and_claim


def test_finish_and_claim(queue, stored):
    """The task is finished and the next one is held by the same owner, in the order of the contract."""
    low, first = sent(queue, "low") + sent(queue, "first", priority=5)
    claim = queue.claim("w")
    high = sent(queue, "high", priority=9)[0]
    since = len(stored.rows("journal"))
    taken = queue.finish_and_claim(claim, {"n": 1})
    assert (first, high) == (claim.task_id, taken.task_id)
    assert Claim(high, "w", 1, 1, {"n": 1}, 1010.0, 2000.0) == taken
    assert [
        ("first", "task", "running", "done"),
        ("first", "reply", "new", "pending"),
        ("high", "task", "pending", "running"),
    ] == short(stored, since)
    assert low == queue.finish_and_claim(taken, None).task_id
    assert "null" == queue.task(high).result


def test_finish_and_claim_says_none(queue):
    """Where nothing is left the task is finished all the same, and the answer is None."""
    (claim,) = held(queue, "a")
    assert queue.finish_and_claim(claim, 1) is None
    assert "done" == queue.task(claim.task_id).state


def test_finish_and_claim_asks_its_queues(queue):
    """The next one comes from the queues that are named, whatever queue the finished task was in."""
    sent(queue, "a", queue="one")
    mine = sent(queue, "b", queue="two")
    sent(queue, "c")
    assert mine == [queue.finish_and_claim(queue.claim("w", ("one",)), 1, ("two", "three")).task_id]


@pytest.mark.parametrize("waiting", [(), ("next",)], ids=["nothing", "next"])
def test_finish_and_claim_fenced_takes_nothing(queue, clock, stored, waiting):
    """Where the claim is lost, nothing is finished, nothing taken and nothing settled."""
    lost = held(queue, "lost", "cancelled", "due")
    queue.cancel(lost[1].task_id)
    sent(queue, *waiting)
    before = stored.contents()
    made_up = [
        dataclasses.replace(lost[0], **change)
        for change in ({"fence": 9}, {"fence": -1}, {"owner": "v"}, {"task_id": "x"})
    ]
    for claim in (lost[1], *made_up):
        with pytest.raises(Fenced):
            queue.finish_and_claim(claim, 1)
    clock.advance(10)
    with pytest.raises(Fenced):
        queue.finish_and_claim(lost[0], 1)
    assert before == stored.contents()
    for bad in (float("inf"), {1: 2}, object()):
        with pytest.raises(InvalidEnvelope):
            queue.finish_and_claim(lost[0], bad)
    for bad in (None, "claim", lost):
        with pytest.raises(InvalidEnvelope):
            queue.finish_and_claim(bad, 1)
    assert before == stored.contents()


def test_finish_and_claim_again(queue, stored):
    """Asked again with the same result, it finishes nothing a second time, and takes the next one."""
    (claim,) = held(queue, "a")
    first, second = sent(queue, "b", "c")
    assert first == queue.finish_and_claim(claim, 1).task_id
    assert second == queue.finish_and_claim(claim, 1).task_id
    assert queue.finish_and_claim(claim, 1) is None
    assert 1 == len(queue.replies())
    before = stored.contents()
    with pytest.raises(Fenced):
        queue.finish_and_claim(claim, 2)
    assert before == stored.contents()


def test_finish_and_claim_settles_first(queue, clock, stored):
    """What is due is settled before the next one is picked, and may be that next one."""
    (lost,) = held(queue, "lost")
    clock.advance(1)
    mine = held(queue, "mine")[0]
    (late,) = sent(queue, "late", deadline=1009.0)
    clock.advance(9)
    since = len(stored.rows("journal"))
    taken = queue.finish_and_claim(mine, 1)
    assert (lost.task_id, 2) == (taken.task_id, taken.fence)
    assert "expired" == queue.task(late).state
    expected = [
        ("mine", "task", "running", "done"),
        ("mine", "reply", "new", "pending"),
        ("late", "task", "pending", "expired"),
        ("late", "reply", "new", "pending"),
        ("lost", "task", "running", "pending"),
        ("lost", "task", "pending", "running"),
    ]
    assert expected == short(stored, since)


# receive_all


def test_the_same_message_twice_in_one_batch(queue, stored):
    """The second one is a duplicate of the first, which is stored once."""
    acks = queue.receive_all([envelope("a"), envelope("b"), envelope("a"), envelope("a", deadline=2000)], AUTH)
    assert [False, False, True, True] == [ack.duplicate for ack in acks]
    assert acks[0].task_id == acks[2].task_id == acks[3].task_id
    assert (2, 2) == (len(stored.rows("inbox")), len(stored.rows("tasks")))
    acks = queue.receive_all([envelope("c"), envelope("a"), envelope("c")], AUTH)
    assert [False, True, True] == [ack.duplicate for ack in acks]


@pytest.mark.parametrize("other", [{"hops": 1}, {"queue": "mail"}, {"priority": 1}], ids=str)
def test_other_content_within_one_batch(queue, stored, other):
    """Two messages of one id with different content are a collision, and nothing of the batch is stored."""
    before = stored.contents()
    with pytest.raises(PayloadCollision):
        queue.receive_all([envelope("b"), envelope("a"), envelope("a", **other)], AUTH)
    assert before == stored.contents()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_collision_with_what_is_stored(queue, stored, place):
    """A collision with what is stored, wherever it stands, leaves nothing of the batch."""
    queue.receive(envelope("old"), AUTH)
    before = stored.contents()
    batch = [envelope("a"), envelope("b")]
    batch.insert(place, envelope("old", priority=1))
    with pytest.raises(PayloadCollision):
        queue.receive_all(batch, AUTH)
    assert before == stored.contents()


def test_what_is_no_batch(queue, stored):
    """What cannot be iterated over, or holds something else than messages, is refused and stores nothing."""
    before = stored.contents()
    for bad in (None, 5, [None], [envelope("a"), None], [envelope("a"), "b"], "ab"):
        with pytest.raises(InvalidEnvelope):
            queue.receive_all(bad, AUTH)
    assert before == stored.contents()


def test_a_batch_with_tasks_that_end_at_once(queue, stored):
    """In one batch an expired and a far-travelled message get their state, reply and journal; the third is pending."""
    batch = [envelope("late", deadline=1000.0), envelope("good"), envelope("far", hops=4, queue="mail", priority=3)]
    acks = queue.receive_all(batch, AUTH)
    good = acks[1].task_id
    assert [LATE, good, FAR] == [ack.task_id for ack in acks]
    assert ["expired", "pending", "hop_limit"] == [queue.task(ack.task_id).state for ack in acks]
    assert ["deadline reached", None, "hop budget reached"] == [queue.task(ack.task_id).reason for ack in acks]
    assert [1000.0, None, 1000.0] == [queue.task(ack.task_id).ended_at for ack in acks]
    assert [
        f'{{"kind":"result","result":"deadline reached","status":"expired","task_id":"{LATE}"}}',
        f'{{"kind":"result","result":"hop budget reached","status":"hop_limit","task_id":"{FAR}"}}',
    ] == [reply.payload for reply in queue.replies()]
    assert [f"reply:{LATE}", f"reply:{FAR}"] == [reply.reply_id for reply in queue.replies()]
    nobody = (None, 0, 0)
    expected = [
        (1000.0, LATE, "task", "new", "expired", *nobody, "deadline reached"),
        (1000.0, good, "task", "new", "pending", *nobody, "received"),
        (1000.0, FAR, "task", "new", "hop_limit", *nobody, "hop budget reached"),
        (1000.0, LATE, "reply", "new", "pending", *nobody, "task expired"),
        (1000.0, FAR, "reply", "new", "pending", *nobody, "task hop_limit"),
    ]
    assert expected == moves(stored)
    assert [good] == [claim.task_id for claim in queue.claim_batch("w", 5, ("default", "mail"))]
