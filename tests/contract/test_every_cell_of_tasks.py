"""Every cell that a verb of tasks changes, every field that it answers, and that it changes nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from recovery import Claim, Reconciled, Task, Verdict, states
from recovery.admission import admit
from tests.contract.cells import DIFFERENT, FREE, TASK_IDS, changed, new_reply, replied, task_move
from tests.plugins.queues import AUTH, envelope

CALLED_OFF, LATE, SPENT = states.CANCELLED_BY_SCHEDULER, states.DEADLINE_REACHED, states.ATTEMPTS_EXHAUSTED
HOPS = states.HOPS_REACHED


@pytest.fixture
def queue(door, database_url, clock):
    """A queue all of whose numbers are different, so that none can stand for another."""
    return door.queue(database_url, clock=clock, **DIFFERENT)


def task_of(sent, **cells):
    """The row of a new task, with what is different in it."""
    payload = {"a": '{"n":1}', "b": '{"n":2}'}.get(sent.message_id, '{"n":3}')
    row = {
        "task_id": TASK_IDS[sent.message_id],
        "queue": sent.queue,
        "priority": sent.priority,
        "state": "pending",
        "payload": payload,
        "deadline": sent.deadline,
        "hops": sent.hops,
        "max_attempts": sent.max_attempts,
        "attempts": 0,
        "fence": 0,
        "available_at": 1000.0,
        "owner": None,
        "lease_until": None,
        "last_owner": None,
        "last_error": None,
        "result": None,
        "reason": None,
        "received_at": 1000.0,
        "ended_at": None,
    }
    return row | cells


def inbox_of(queue, sent):
    """The row of what was accepted."""
    return {
        "task_id": TASK_IDS[sent.message_id],
        "principal": "agent-a",
        "message_id": sent.message_id,
        "kind": "task",
        "fingerprint": admit(sent, AUTH, queue.settings).fingerprint,
        "scope_name": None,
        "scope_version": None,
    }


SENT = (
    envelope("d", payload={"n": 3}, deadline=1000.0, hops=7, queue="mail", priority=2),
    envelope("b", payload={"n": 2}, deadline=1001.0, hops=4, max_attempts=1, queue="mail", priority=7),
    envelope("a", payload={"n": 1}, deadline=1500.5),
    envelope("c", payload={"n": 3}, deadline=1001.0, hops=5, max_attempts=2),
)
"""One that is late and came too far, one that has both still before it, a plain one, one that came just too far."""


@pytest.mark.parametrize("whole", [True, False], ids=["receive_all", "receive"])
def test_what_is_received(queue, stored, whole):
    """Messages, their tasks, replies of those that ended at once, and the journal, in the order in which they came."""
    before = stored.contents()
    acks = (
        queue.receive_all([*SENT, SENT[1]], AUTH) if whole else [queue.receive(one, AUTH) for one in (*SENT, SENT[1])]
    )
    assert [(TASK_IDS[one.message_id], "stored") for one in (*SENT, SENT[1])] == [(a.task_id, a.ack) for a in acks]
    assert [False, False, False, False, True] == [ack.duplicate for ack in acks]
    found = changed(before, stored.contents())
    late, good, plain, far = SENT
    assert sorted((inbox_of(queue, one) for one in SENT), key=by_id) == sorted(found.pop("new inbox"), key=by_id)
    moves = found.pop("journal")
    assert found == {
        "new tasks": [
            task_of(late, state="expired", reason=LATE, ended_at=1000.0),
            task_of(good),
            task_of(plain),
            task_of(far, state="hop_limit", reason=HOPS, ended_at=1000.0),
        ],
        "new outbox": [
            new_reply("d", "expired", f'"{LATE}"', 1000.0),
            new_reply("c", "hop_limit", f'"{HOPS}"', 1000.0),
        ],
    }
    expected = [
        received("d", "expired", LATE),
        received("b", "pending", "received"),
        received("a", "pending", "received"),
        received("c", "hop_limit", HOPS),
        replied("d", "expired", 1000.0),
        replied("c", "hop_limit", 1000.0),
    ]
    assert expected == moves if whole else sorted(expected) == sorted(moves)


def by_id(row):
    """The id of a row."""
    return row["task_id"]


def received(name, target, why):
    """What the journal says of a task that is new."""
    return task_move(name, target, why, 1000.0, was="new", owner=None, fence=0, attempt=0)


@pytest.fixture
def held(queue, clock):
    """Two tasks that are held since 1001, the second of them for the last time, and a third one; at 1003."""
    queue.receive(envelope("a", payload={"n": 1}), AUTH)
    queue.receive(envelope("b", payload={"n": 2}, max_attempts=1), AUTH)
    queue.receive(envelope("c", payload={"n": 3}, deadline=3000.0), AUTH)
    clock.advance(1)
    claims = queue.claim_batch("w", 2)
    clock.advance(2)
    return claims


def test_what_is_claimed(queue, clock, stored):
    """The claim says what the row says, and the look at the task says it too."""
    queue.receive(envelope("a", payload={"n": 1}, deadline=1500.5), AUTH)
    queue.receive(envelope("b", payload={"n": 2}, queue="mail", priority=4), AUTH)
    queue.receive(envelope("c", payload={"n": 3}, queue="mail"), AUTH)
    clock.advance(1)
    before = stored.contents()
    held = {"state": "running", "attempts": 1, "fence": 1, "owner": "w", "lease_until": 1031.0, "last_owner": "w"}
    claims = queue.claim_batch("w", 2, ("default", "mail"))
    assert [
        Claim(TASK_IDS["b"], "w", 1, 1, {"n": 2}, 1031.0, 2000.0),
        Claim(TASK_IDS["a"], "w", 1, 1, {"n": 1}, 1031.0, 1500.5),
    ] == claims
    assert {float} == {type(one) for claim in claims for one in (claim.lease_until, claim.deadline)}
    assert {
        "tasks": {"a": held, "b": held},
        "journal": [
            task_move("b", "running", "claimed", 1001.0, was="pending"),
            task_move("a", "running", "claimed", 1001.0, was="pending"),
        ],
    } == changed(before, stored.contents())
    rows = {row["task_id"]: row for row in stored.rows("tasks")}
    inbox = {row["task_id"]: row for row in stored.rows("inbox")}
    for identity, row in rows.items():
        expected = Task(**{name: (inbox[identity] | row)[name] for name in Task.__slots__})
        assert expected == queue.task(identity)


NEXT = {"state": "running", "attempts": 1, "fence": 1, "owner": "w", "lease_until": 1033.0, "last_owner": "w"}
DONE = {**FREE, "state": "done", "result": '{"x":1}', "ended_at": 1003.0}
DONE_MOVES = [task_move("a", "done", "finished", 1003.0), replied("a", "done", 1003.0)]
DONE_REPLY = [new_reply("a", "done", '{"x":1}', 1003.0)]


def ended(name, state, reason, why, at=1003.0, **cells):
    """What is different after a task has ended otherwise than by its result."""
    return {
        "tasks": {name: {**FREE, "state": state, "reason": reason, "ended_at": at, **cells}},
        "new outbox": [new_reply(name, state, f'"{reason}"', at)],
        "journal": [task_move(name, state, why, at), replied(name, state, at)],
    }


def freed(name, why, at=1003.0, **cells):
    """What is different after a task was given back."""
    return {
        "tasks": {name: {**FREE, "state": "pending", **cells}},
        "journal": [task_move(name, "pending", why, at)],
    }


def pending_cancelled():
    """What is different after a task was called off that nobody held."""
    cells = {"state": "cancelled", "reason": CALLED_OFF, "ended_at": 1003.0}
    moves = [task_move("c", "cancelled", CALLED_OFF, 1003.0, was="pending", owner=None, fence=0, attempt=0)]
    return {
        "tasks": {"c": cells},
        "new outbox": [new_reply("c", "cancelled", f'"{CALLED_OFF}"', 1003.0)],
        "journal": [*moves, replied("c", "cancelled", 1003.0)],
    }


def told(verdicts):
    """What each verdict says, with the reason of a refusal."""
    return [(one.identity, one.state, one.error and one.error.why) for one in verdicts]


VERBS = {
    "renew": (
        lambda queue, a, _: queue.renew(a),
        lambda a, _: dataclasses.replace(a, lease_until=1033.0),
        {"tasks": {"a": {"lease_until": 1033.0}}},
    ),
    "finish": (
        lambda queue, a, _: queue.finish(a, {"x": 1}),
        lambda *_: None,
        {"tasks": {"a": DONE}, "new outbox": DONE_REPLY, "journal": DONE_MOVES},
    ),
    "finish_batch": (
        lambda queue, a, b: queue.finish_batch([(b, None), (a, {"x": 1})]),
        lambda a, b: [Verdict(b.task_id, "done"), Verdict(a.task_id, "done")],
        {
            "tasks": {"a": DONE, "b": {**DONE, "result": "null"}},
            "new outbox": [new_reply("b", "done", "null", 1003.0), *DONE_REPLY],
            "journal": [task_move("b", "done", "finished", 1003.0), replied("b", "done", 1003.0), *DONE_MOVES],
        },
    ),
    "finish_and_claim": (
        lambda queue, a, _: queue.finish_and_claim(a, {"x": 1}),
        lambda *_: Claim(TASK_IDS["c"], "w", 1, 1, {"n": 3}, 1033.0, 3000.0),
        {
            "tasks": {"a": DONE, "c": NEXT},
            "new outbox": DONE_REPLY,
            "journal": [*DONE_MOVES, task_move("c", "running", "claimed", 1003.0, was="pending")],
        },
    ),
    "finish_and_claim nothing": (
        lambda queue, a, _: queue.finish_and_claim(a, {"x": 1}, ("other",)),
        lambda *_: None,
        {"tasks": {"a": DONE}, "new outbox": DONE_REPLY, "journal": DONE_MOVES},
    ),
    "finish_batch twice the same": (
        lambda queue, a, _: told(queue.finish_batch([(a, {"x": 1}), (a, 2)])),
        lambda a, _: [(a.task_id, "done", None), (a.task_id, None, "it is done")],
        {"tasks": {"a": DONE}, "new outbox": DONE_REPLY, "journal": DONE_MOVES},
    ),
    "finish_batch twice the same, and again": (
        lambda queue, a, _: told(queue.finish_batch([(a, {"x": 1}), (a, {"x": 1})])),
        lambda a, _: [(a.task_id, "done", None)] * 2,
        {"tasks": {"a": DONE}, "new outbox": DONE_REPLY, "journal": DONE_MOVES},
    ),
    "fail": (
        lambda queue, a, _: queue.fail(a, "no"),
        lambda *_: "pending",
        freed("a", "no", available_at=1005.0, last_error="no"),
    ),
    "fail at last": (
        lambda queue, _, b: queue.fail(b, "no"),
        lambda *_: "failed",
        ended("b", "failed", "no", "no", last_error="no"),
    ),
    "fail for good": (
        lambda queue, a, _: queue.fail(a, "no", retryable=False),
        lambda *_: "failed",
        ended("a", "failed", "no", "no", last_error="no"),
    ),
    "release": (
        lambda queue, a, _: queue.release(a),
        lambda *_: "pending",
        freed("a", "released", available_at=1003.0),
    ),
    "release at last": (
        lambda queue, _, b: queue.release(b),
        lambda *_: "failed",
        ended("b", "failed", SPENT, "released"),
    ),
    "cancel": (
        lambda queue, a, _: queue.cancel(a.task_id),
        lambda *_: True,
        ended("a", "cancelled", CALLED_OFF, CALLED_OFF),
    ),
    "cancel what is pending": (
        lambda queue, *_: queue.cancel(TASK_IDS["c"]),
        lambda *_: True,
        pending_cancelled(),
    ),
}


@pytest.mark.parametrize(("call", "answer", "expected"), VERBS.values(), ids=VERBS.keys())
def test_a_verb(queue, stored, held, call, answer, expected):
    """It answers what it should, and changes what it should."""
    before = stored.contents()
    assert answer(*held) == call(queue, *held)
    assert expected == changed(before, stored.contents())


def over():
    """What is different after both leases are over: the one is free, the last attempt of the other was lost."""
    free = freed("a", "lease over", 1031.0, available_at=1031.0)
    spent = ended("b", "failed", SPENT, SPENT, 1031.0)
    return {
        "tasks": free["tasks"] | spent["tasks"],
        "new outbox": spent["new outbox"],
        "journal": sorted([*spent["journal"], *free["journal"]], key=str),
    }


def late():
    """What is different after the deadlines of all three are over, whether they are held or not."""
    cells = {"state": "expired", "reason": LATE, "ended_at": 1020.0}
    names = sorted("abc", key=TASK_IDS.__getitem__)  # What is settled at once is settled in the order of the ids.
    moves = [task_move(name, "expired", LATE, 1020.0) for name in "ab"]
    moves += [task_move("c", "expired", LATE, 1020.0, was="pending", owner=None, fence=0, attempt=0)]
    moves += [replied(name, "expired", 1020.0) for name in "abc"]
    return {
        "tasks": {"a": {**FREE, **cells}, "b": {**FREE, **cells}, "c": cells},
        "new outbox": [new_reply(name, "expired", f'"{LATE}"', 1020.0) for name in names],
        "journal": sorted(moves, key=str),
    }


DUE = {"the lease": (2000.0, 30.0, over(), 2), "the deadline": (1020.0, 19.0, late(), 3)}


@pytest.mark.parametrize("way", ["reconcile", "claim", "claim_batch"])
@pytest.mark.parametrize(("deadline", "seconds", "expected", "count"), DUE.values(), ids=DUE.keys())
def test_what_is_due(queue, clock, stored, way, deadline, seconds, expected, count):
    """What is over is settled alike, by reconcile and before a claim: at that very moment, and not before."""
    for name, attempts in (("a", 2), ("b", 1), ("c", 1)):
        queue.receive(envelope(name, deadline=deadline, max_attempts=attempts), AUTH)
    clock.advance(1)
    assert 2 == len(queue.claim_batch("w", 2))
    clock.advance(seconds - 0.001)
    before = stored.contents()
    assert Reconciled(0, 0) == queue.reconcile()
    assert [] == queue.claim_batch("w", 5, ("none",))
    assert before == stored.contents()
    clock.advance(0.001)
    if way == "reconcile":
        assert Reconciled(count, 0) == queue.reconcile()
    elif way == "claim":
        assert queue.claim("w", ("none",)) is None
    else:
        assert [] == queue.claim_batch("w", 5, ("none",))
    found = changed(before, stored.contents())
    found["journal"].sort(key=str)
    assert expected == found


@pytest.fixture
def kept(queue, clock, held):
    """The first of the two, held for longer; it is 1031, and the lease of the second is over."""
    clock.advance(20)
    claim = queue.renew(held[0])
    clock.advance(8)
    return claim


def test_without_settling(queue, clock, stored, kept):
    """Where a claim is told not to settle, it takes what there is, and leaves alone what is due."""
    before = stored.contents()
    assert queue.claim("v", ("none",), settle=False) is None
    assert [] == queue.claim_batch("v", 5, ("none",), settle=False)
    assert before == stored.contents()
    taken = queue.claim("w", settle=False)
    assert TASK_IDS["c"] == taken.task_id
    assert queue.claim("v", settle=False) is None
    assert queue.finish_and_claim(kept, 1, settle=False) is None
    assert ("running", "done") == (queue.task(TASK_IDS["b"]).state, queue.task(kept.task_id).state)
    assert [] == queue.claim_batch("v", 5, settle=False)
    assert "running" == queue.task(TASK_IDS["b"]).state
    queue.receive(envelope("d", deadline=1032.0), AUTH)
    clock.advance(1)
    assert queue.claim("v", settle=False) is None


def test_the_order_of_what_is_settled(queue, clock):
    """What one claim settles is written in the order of the ids, whatever was over first."""
    names = sorted("abc", key=TASK_IDS.__getitem__)
    for place, name in enumerate(names):
        queue.receive(envelope(name, deadline=1020.0 - place), AUTH)
    clock.advance(20)
    assert queue.claim("w", ("none",)) is None
    assert [TASK_IDS[name] for name in names] == [reply.task_id for reply in queue.replies()]


def test_what_is_due_beside_a_finish(queue, stored, kept):
    """A finish that claims settles too, after what it finished."""
    before = stored.contents()
    assert TASK_IDS["c"] == queue.finish_and_claim(kept, {"x": 1}).task_id
    spent = ended("b", "failed", SPENT, SPENT, 1031.0)
    done = {**FREE, "state": "done", "result": '{"x":1}', "ended_at": 1031.0}
    assert {
        "tasks": {"a": done, "c": {**NEXT, "lease_until": 1061.0}, **spent["tasks"]},
        "new outbox": [new_reply("a", "done", '{"x":1}', 1031.0), *spent["new outbox"]],
        "journal": [
            task_move("a", "done", "finished", 1031.0),
            replied("a", "done", 1031.0),
            *spent["journal"],
            task_move("c", "running", "claimed", 1031.0, was="pending"),
        ],
    } == changed(before, stored.contents())
