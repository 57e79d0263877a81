"""Each rule sees the damage that it is there for."""

from __future__ import annotations

import pytest

from tests.worlds.contents import fingerprint, task_id
from tests.worlds.invariants import violations
from tests.worlds.machine import Taken
from tests.worlds.named import WHOLE
from tests.worlds.rules import broken
from tests.worlds.steps import SENDER, Step

MESSAGE = WHOLE.envelopes()[0]
SENT = {task_id(SENDER, MESSAGE.message_id): fingerprint(MESSAGE)}

COPY = (
    "INSERT INTO journal (at, task_id, subject, from_state, to_state, owner, fence, attempt, why) "
    "SELECT {at}, task_id, subject, from_state, to_state, owner, fence, attempt, why FROM journal WHERE {which}"
)
DAMAGE = {
    "a message without its task": (
        "DELETE FROM inbox",
        "do not belong together one by one",
    ),
    "a message under another's id": ("UPDATE inbox SET message_id = 'other'", "has the id of another"),
    "other content under a message's id": ("UPDATE inbox SET fingerprint = 'v1:0'", "that nobody sent"),
    "an end without a reply": ("DELETE FROM outbox", "is done and has 0 replies"),
    "a reply before the end": (
        "UPDATE tasks SET state = 'pending', ended_at = NULL, result = NULL",
        "is pending and has 1 replies",
    ),
    "a reply of another state": ("UPDATE outbox SET status = 'failed'", "is not that of a task that is done"),
    "a reply of other bytes": (
        "UPDATE outbox SET payload = replace(payload, '\"x\"', '\"y\"')",
        "is not that of a task that is done",
    ),
    "more attempts than there are": ("UPDATE tasks SET attempts = 3", "3 of 2 attempts"),
    "half a lease": ("UPDATE tasks SET owner = 'a'", "half a lease"),
    "no fence floor": ("DELETE FROM fence_floor", "not one fence floor"),
    "a move that is not told": ("DELETE FROM journal WHERE to_state = 'running'", "its journal is torn"),
    "a move that there is not": ("UPDATE journal SET from_state = 'done' WHERE seq = 1", "a move that there is not"),
    "a row that nobody tells of": ("DELETE FROM journal WHERE subject = 'reply'", "other rows than there are"),
    "a fence that nobody was given": ("UPDATE tasks SET fence = 9", "has fence 9 after 1 attempts"),
    "a move back in time": ("UPDATE journal SET at = 1 WHERE to_state = 'done'", "went back in time"),
    "a fence that was handed out twice": (
        COPY.format(at="at", which="subject = 'reply' AND to_state = 'sending'"),
        "was claimed under fences [1, 1]",
    ),
    "a move under another's claim": (
        "UPDATE journal SET owner = 'b' WHERE to_state = 'done'",
        "was left under another claim",
    ),
    "a start after the deadline": ("UPDATE journal SET at = 9e9 WHERE seq > 1", "became running after its deadline"),
    "a receipt of other bytes": ("UPDATE outbox SET payload = ''", "for other bytes than the reply's"),
}


@pytest.fixture
def sent(machine_of):
    """A machine, and the state in which its one task is done, its reply sent and the effect applied."""
    machine = machine_of(WHOLE)
    state = machine.start()
    for actor, verb in STORY:
        mine = next((one for one in state.held if one.actor == actor), None)
        state = machine.take(state, Step(actor, verb, mine, MESSAGE)).after
    return machine, state


STORY = (
    ("sender", "receive"),
    ("a", "claim"),
    ("a", "finish x"),
    ("d", "claim reply"),
    ("d", "send"),
    ("d", "settle delivered"),
)


def _damaged(machine, state, *statements):
    """The state after somebody wrote into the tables, unhindered by keys and checks."""
    machine._queue.restore(state.queue)
    machine._receiver.restore(state.receiver)
    for memory, statement in statements:
        memory.driver.execute("PRAGMA foreign_keys = OFF")
        memory.driver.execute("PRAGMA ignore_check_constraints = ON")
        memory.driver.execute(statement)
        memory.driver.commit()
    return machine._state(state, state.now, state.held)


def test_an_undamaged_state_breaks_no_rule(sent) -> None:
    """What follows is found because of the damage."""
    _, state = sent
    assert ("done", "sent") == (state.contents.queue.tasks[0].state, state.contents.queue.outbox[0].state)
    assert [] == violations(state.contents, SENT)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_seen(name, sent) -> None:
    """One statement breaks the rule, and its sentence says so."""
    statement, sentence = DAMAGE[name]
    machine, state = sent
    after = _damaged(machine, state, (machine._queue, statement))
    assert sentence in "\n".join(violations(after.contents, SENT))


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("INSERT INTO applied SELECT reply_id FROM applied", "receipts and effects do not belong together"),
        ("DELETE FROM effects", "receipts and marks do not belong together"),
        ("DELETE FROM receipts", "its receiver has no receipt"),
        ("UPDATE receipts SET payload = ''", "for other bytes"),
        ("UPDATE receipts SET content_hash = ''", "for other bytes"),
    ],
)
def test_damage_at_the_receiver_is_seen(statement, sentence, sent) -> None:
    """The same on the other side."""
    machine, state = sent
    after = _damaged(machine, state, (machine._receiver, statement))
    assert sentence in "\n".join(violations(after.contents, SENT))


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE tasks SET reason = 'late'", "a task that was done was changed"),
        ("UPDATE outbox SET settled_at = 1", "a reply that was sent was changed"),
        ("DELETE FROM outbox", "a reply vanished"),
        ("DELETE FROM journal WHERE seq = 1", "a move was changed or lost"),
        ("UPDATE inbox SET fingerprint = ''", "a message was changed or lost"),
        ("UPDATE fence_floor SET floor = 7", "a floor was changed or lost"),
        (COPY.format(at="1", which="seq = 1"), "a move was noted at another time"),
        ("UPDATE tasks SET state = 'failed'", "the journal does not tell how task"),
    ],
)
def test_a_step_that_touches_what_it_may_not_is_seen(statement, sentence, sent) -> None:
    """A claim that finds nothing, and meanwhile something is lost, changed or told that nobody did."""
    machine, state = sent
    after = _damaged(machine, state, (machine._queue, statement))
    assert sentence in "\n".join(broken(WHOLE, state, Taken(Step("a", "claim"), None, after, 0)))


def test_a_column_that_is_fixed_is_seen_to_move(machine_of) -> None:
    """Also of a task that is open, and a fence that falls."""
    machine = machine_of(WHOLE)
    state = machine.start()
    for step in (Step("sender", "receive", message=MESSAGE), Step("a", "claim")):
        state = machine.take(state, step).after
    moved = _damaged(machine, state, (machine._queue, "UPDATE tasks SET deadline = deadline + 1"))
    fallen = _damaged(machine, state, (machine._queue, "UPDATE tasks SET fence = 0"))
    for after, sentence in ((moved, "a task has another deadline"), (fallen, "the fence of a task fell")):
        assert sentence in "\n".join(broken(WHOLE, state, Taken(Step("a", "claim"), None, after, 0)))
