"""What became of an operation that nobody heard the end of, and what a receiver or a dispatcher did by halves."""

from __future__ import annotations

import pytest

from recovery.testing.evidence import Evidence, QueueRows, ReceiverRows
from recovery.testing.history import UNKNOWN, Operation
from recovery.testing.journal_rules import fences_increase
from recovery.testing.log_rules import Resolved, resolved, unknown_is_one_of_two
from recovery.testing.promises import reply_id, sha256
from recovery.testing.row_rules import attempts_in_bounds, reply_says_the_state

TASK, REPLY = "t", reply_id("t")


def unheard(name, **asked):
    """An operation without an answer."""
    return Operation("actor.1", 1, name, 1.0, asked, UNKNOWN, 2.0, {"error": "CommitUnknown"})


ACCEPT = unheard("accept", reply_id=REPLY, payload=sha256("{}"))
CANCEL = unheard("cancel", task_id=TASK)


def evidence(*operations, tasks=(), outbox=(), journal=(), receipts=0, effects=0, own=None):
    """Rows of one task, and so many of its reply at the receiver."""
    receipt = {"reply_id": REPLY, "content_hash": sha256("{}"), "payload": "{}"}
    at_receiver = ReceiverRows([receipt] * receipts, [{"reply_id": REPLY}] * effects, own)
    return Evidence(operations, QueueRows([], tasks, outbox, journal, 9.0), at_receiver)


def move(seq, target, fence, source="pending", subject="task"):
    """A row of the journal."""
    return {
        "seq": seq,
        "at": float(seq),
        "task_id": TASK,
        "subject": subject,
        "from_state": source,
        "to_state": target,
        "owner": "w",
        "fence": fence,
        "attempt": 1,
    }


@pytest.mark.parametrize("is_done", [True, False])
def test_what_nobody_heard_is_told_from_the_rows(is_done):
    """A receipt with these bytes, or a task that is cancelled, was done; any other state was not."""
    task = {"task_id": TASK, "state": "cancelled" if is_done else "pending"}
    found = resolved(evidence(ACCEPT, CANCEL, tasks=[task], receipts=int(is_done)))
    assert Resolved(2 * is_done, 2 * (not is_done)) == found


@pytest.mark.parametrize(
    ("receipts", "effects", "own", "is_whole"),
    [
        (0, 0, None, True),
        (1, 1, None, True),
        (1, 1, [REPLY], True),
        (1, 0, None, False),
        (1, 1, [], False),
        (0, 0, [REPLY], False),
        (2, 2, [REPLY] * 2, False),
    ],
)
def test_an_unheard_delivery_is_there_as_a_whole_or_not_at_all(receipts, effects, own, is_whole):
    """Receipt, mark and the receiver's own effect, where it has a table of its own, go together."""
    found = list(unknown_is_one_of_two(evidence(ACCEPT, receipts=receipts, effects=effects, own=own)))
    assert ([] if is_whole else [REPLY]) == [subject for subject, _ in found]


@pytest.mark.parametrize(("fence", "is_found"), [(1, False), (0, True), (-1, True)])
def test_the_first_fence_is_one_at_least(fence, is_found):
    """Nothing comes before it that it could be compared with."""
    found = list(fences_increase(evidence(journal=[move(1, "running", fence)])))
    assert is_found is bool(found)


def test_a_dead_reply_that_is_sent_anew_has_a_new_budget():
    """Its attempts begin again, so that they are fewer than the claims in the journal; a task's never do."""
    moves = [move(1, "sending", 1, subject="reply"), move(2, "dead", 1, "sending", "reply")]
    reply = {"task_id": TASK, "attempts": 0, "max_attempts": 3}
    assert ["reply t"] == [subject for subject, _ in attempts_in_bounds(evidence(outbox=[reply], journal=moves))]
    replayed = [*moves, move(3, "pending", 1, "dead", "reply")]
    assert [] == list(attempts_in_bounds(evidence(outbox=[reply], journal=replayed)))


@pytest.mark.parametrize("result", [None, "no JSON", '{"b": 1}'])
def test_a_result_that_is_not_canonical_has_no_reply(result):
    """Whatever the reply says, it cannot be that: what is stored is not what the contract would have stored."""
    task = {"task_id": TASK, "state": "done", "result": result, "reason": None}
    reply = {"reply_id": REPLY, "task_id": TASK, "status": "done", "payload": "{}"}
    ((subject, seen),) = reply_says_the_state(evidence(tasks=[task], outbox=[reply]))
    assert ("reply t", True) == (subject, "are not the contract's" in seen)


def test_a_reply_by_another_name_is_found():
    """Its id follows from its task's."""
    task = {"task_id": TASK, "state": "failed", "result": None, "reason": "r"}
    reply = {"reply_id": "reply:other", "task_id": TASK, "status": "failed", "payload": None}
    assert [("reply t", "it is called reply:other")] == list(
        reply_says_the_state(evidence(tasks=[task], outbox=[reply]))
    )
