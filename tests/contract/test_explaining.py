"""What `explain` says, word for word: somebody who reads it at night must be able to rely on it."""

from __future__ import annotations

import pytest

from recovery import Fenced
from tests.plugins.queues import AUTH, envelope
from tests.plugins.receivers import LostAck

RECEIVED = "accepted from 'agent-a' as message 'm-1'; stored once"
NO_CLAIM = "it was never claimed"
BY_W = "nobody holds it now; 'w' was the last, under fence 1; 1 of 3 attempts used"
NO_END = "it has not ended"
DONE = "it was done, and its result is stored"
EXPIRED = "its deadline passed before it was done: deadline reached"
CANCELLED = "it was cancelled: cancelled by scheduler"
NO_REPLY = "there is no reply before the task ends"
UNSENT = "the reply waits to be sent; 0 of 3 attempts used"
COLLISION = "reply:ID is already stored with different content; what is stored stays as it was."
UNTRUSTED = "no trusted confirmation within the budget, the receiver may have it all the same"
SEND = "the next dispatcher sends the reply"


def received(queue, **changes):
    """The id of a new task."""
    return queue.receive(envelope(**changes), AUTH).task_id


def done(queue, clock, receiver):
    """One attempt, one result."""
    task_id = received(queue)
    queue.finish(queue.claim("w"), 1)
    return task_id


def failed_by_attempts(queue, clock, receiver):
    """Two attempts of two failed."""
    task_id = received(queue, max_attempts=2)
    queue.fail(queue.claim("w"), "boom")
    clock.advance(2)
    queue.fail(queue.claim("v"), "bang")
    return task_id


def failed_by_lost_leases(queue, clock, receiver):
    """The only attempt was lost with its worker."""
    task_id = received(queue, max_attempts=1)
    queue.claim("w")
    clock.advance(10)
    queue.claim("v")
    return task_id


def failed_for_good(queue, clock, receiver):
    """The worker said that another attempt is no use."""
    task_id = received(queue)
    queue.fail(queue.claim("w"), "boom", retryable=False)
    return task_id


def cancelled_unclaimed(queue, clock, receiver):
    """Cancelled while it waited."""
    task_id = received(queue)
    queue.cancel(task_id)
    return task_id


def cancelled_at_work(queue, clock, receiver):
    """Cancelled while a worker had it."""
    task_id = received(queue)
    queue.claim("w")
    queue.cancel(task_id)
    return task_id


def expired_at_once(queue, clock, receiver):
    """It came too late."""
    return received(queue, deadline=999.0)


def expired_unclaimed(queue, clock, receiver):
    """Nobody came in time."""
    task_id = received(queue, deadline=1005.0)
    clock.advance(5)
    queue.reconcile()
    return task_id


def expired_at_work(queue, clock, receiver):
    """Its worker was too slow."""
    task_id = received(queue, deadline=1005.0)
    queue.claim("w")
    clock.advance(5)
    queue.reconcile()
    return task_id


def expired_by_its_backoff(queue, clock, receiver):
    """It failed, and a retry would have begun too late."""
    task_id = received(queue, deadline=1002.0)
    queue.fail(queue.claim("w"), "boom")
    return task_id


def hop_limit(queue, clock, receiver):
    """It came through as many agents as the queue allows."""
    return received(queue, hops=4)


def lease_lost_once(queue, clock, receiver):
    """The first worker lost its lease and was refused, and the second finished."""
    task_id = received(queue)
    stale = queue.claim("w")
    clock.advance(10)
    queue.finish(queue.claim("v"), 1)
    with pytest.raises(Fenced):
        queue.finish(stale, 2)
    return task_id


def ack_lost(queue, clock, receiver):
    """The receiver stored the reply, and its answer was lost."""
    task_id = done(queue, clock, receiver)
    queue.dispatch_once(LostAck(receiver))
    return task_id


def refused(queue, clock, receiver):
    """The receiver has something else under the same id."""
    task_id = done(queue, clock, receiver)
    receiver.accept(f"reply:{task_id}", "another")
    queue.dispatch_once(receiver)
    return task_id


def given_up(queue, clock, receiver):
    """Three dispatchers died with the reply in their hands."""
    task_id = done(queue, clock, receiver)
    for owner in ("d", "e", "f"):
        queue.claim_reply(owner)
        clock.advance(10)
    queue.reconcile()
    return task_id


def sent(queue, clock, receiver):
    """The receiver confirmed the reply."""
    task_id = done(queue, clock, receiver)
    queue.dispatch_once(receiver)
    return task_id


ENDINGS = [
    (done, BY_W, DONE, UNSENT, SEND),
    (
        failed_by_attempts,
        "nobody holds it now; 'v' was the last, under fence 2; 2 of 2 attempts used",
        "it failed: bang",
        UNSENT,
        SEND,
    ),
    (
        failed_by_lost_leases,
        "nobody holds it now; 'w' was the last, under fence 1; 1 of 1 attempts used",
        "it failed: attempts exhausted",
        UNSENT,
        SEND,
    ),
    (failed_for_good, BY_W, "it failed: boom", UNSENT, SEND),
    (cancelled_unclaimed, NO_CLAIM, CANCELLED, UNSENT, SEND),
    (cancelled_at_work, BY_W, CANCELLED, UNSENT, SEND),
    (expired_at_once, NO_CLAIM, EXPIRED, UNSENT, SEND),
    (expired_unclaimed, NO_CLAIM, EXPIRED, UNSENT, SEND),
    (expired_at_work, BY_W, EXPIRED, UNSENT, SEND),
    (expired_by_its_backoff, f"{BY_W} (boom)", EXPIRED, UNSENT, SEND),
    (hop_limit, NO_CLAIM, "it had come through too many agents to be worked on: hop budget reached", UNSENT, SEND),
    (
        lease_lost_once,
        "nobody holds it now; 'v' was the last, under fence 2; 2 of 3 attempts used",
        DONE,
        UNSENT,
        SEND,
    ),
    (
        ack_lost,
        BY_W,
        DONE,
        "the reply waits to be sent; 1 of 3 attempts used (TimeoutError: ACK lost)",
        "a dispatcher sends the reply in 2.0 s",
    ),
    (
        refused,
        BY_W,
        DONE,
        f"the receiver refused the reply for good; 1 of 3 attempts used ({COLLISION})",
        "somebody looks at why the receiver refused it, and then replays it or closes it",
    ),
    (
        given_up,
        BY_W,
        DONE,
        f"{UNTRUSTED}; 3 of 3 attempts used (delivery lease expired; outcome unknown)",
        "somebody asks the receiver whether it has the reply, and then replays it or closes it",
    ),
    (sent, BY_W, DONE, "the receiver confirmed that it stored the reply", "nothing: all four stages are over"),
]


def new(queue, clock, receiver):
    """Nobody has claimed it."""
    return received(queue)


def retried_later(queue, clock, receiver):
    """It failed once, and waits out its backoff."""
    task_id = received(queue)
    queue.fail(queue.claim("w"), "boom")
    return task_id


def held(queue, clock, receiver):
    """A worker has it."""
    task_id = received(queue)
    queue.claim("w")
    return task_id


def held_for_the_last_time(queue, clock, receiver):
    """A worker has it, and no other will."""
    task_id = received(queue, max_attempts=1)
    queue.claim("w")
    return task_id


def held_until_the_deadline(queue, clock, receiver):
    """A worker has it for longer than it may be worked on."""
    task_id = received(queue, deadline=1005.0)
    queue.claim("w")
    return task_id


def lost(queue, clock, receiver):
    """Its lease is over at this moment, and nobody has noticed."""
    task_id = held(queue, clock, receiver)
    clock.advance(10)
    return task_id


def lost_for_the_last_time(queue, clock, receiver):
    """The last lease is over, and nobody has noticed."""
    task_id = held_for_the_last_time(queue, clock, receiver)
    clock.advance(12.5)
    return task_id


def too_late(queue, clock, receiver):
    """Its deadline passed, and nobody has noticed."""
    task_id = received(queue, deadline=1005.0)
    clock.advance(5)
    return task_id


IF = "its worker finishes, fails, renews or releases it; if"
OPEN = [
    (new, "nobody has claimed it yet", "the next worker claims it"),
    (retried_later, f"{BY_W} (boom)", "a worker may claim it in 2.0 s"),
    (
        held,
        "'w' holds it under fence 1, for 10.0 s more; 1 of 3 attempts used",
        f"{IF} the lease ends first, the work is given to another",
    ),
    (
        held_for_the_last_time,
        "'w' holds it under fence 1, for 10.0 s more; 1 of 1 attempts used",
        f"{IF} the lease ends first, it ends as failed, because the attempts are spent",
    ),
    (
        held_until_the_deadline,
        "'w' holds it under fence 1, for 10.0 s more; 1 of 3 attempts used",
        f"{IF} its deadline passes first, it ends as expired",
    ),
    (
        lost,
        "'w' holds it under fence 1, but the lease ended 0.0 s ago; 1 of 3 attempts used",
        "the next claim takes it back, because its lease is over",
    ),
    (
        lost_for_the_last_time,
        "'w' holds it under fence 1, but the lease ended 2.5 s ago; 1 of 1 attempts used",
        "the next claim or reconcile ends it as failed: the lease is over and the attempts are spent",
    ),
    (
        too_late,
        "nobody has claimed it yet",
        "the next claim or reconcile ends it as expired, because its deadline passed",
    ),
]

HANDS = [
    (1, 0, "for 10.0 s more", "its dispatcher stores the outcome; if the lease ends first, the reply is sent again"),
    (1, 10, "but the lease ended 0.0 s ago", "the next dispatcher takes it back, because its lease is over"),
    (
        3,
        0,
        "for 10.0 s more",
        "its dispatcher stores the outcome; if the lease ends first, the reply is dead, because the attempts are spent",
    ),
    (
        3,
        10,
        "but the lease ended 0.0 s ago",
        "the next dispatcher or reconcile gives it up as dead: the lease is over and the attempts are spent",
    ),
]


def told(queue, task_id):
    """The five sentences about a task, without its id."""
    story = queue.explain(task_id)
    sentences = (story.received, story.work, story.ending, story.delivery, story.next)
    assert all(sentence in str(story) for sentence in sentences)
    return tuple(sentence.replace(task_id, "ID") for sentence in sentences)


@pytest.mark.parametrize(
    ("live", "work", "ending", "delivery", "then"), ENDINGS, ids=[one[0].__name__ for one in ENDINGS]
)
def test_what_has_ended(queue, clock, receiver, live, work, ending, delivery, then):
    """After each kind of ending, what happened and what will happen to the reply is told in these words."""
    assert (RECEIVED, work, ending, delivery, then) == told(queue, live(queue, clock, receiver))


@pytest.mark.parametrize(("live", "work", "then"), OPEN, ids=[one[0].__name__ for one in OPEN])
def test_what_is_open(queue, clock, receiver, live, work, then):
    """Before the end, who has the task and what will happen to it next is told in these words."""
    task_id = live(queue, clock, receiver)
    assert (RECEIVED, work, NO_END, NO_REPLY, then) == told(queue, task_id)


@pytest.mark.parametrize(("attempt", "seconds", "lease", "then"), HANDS)
def test_what_is_being_sent(queue, clock, receiver, attempt, seconds, lease, then):
    """While a dispatcher has the reply, and when it has lost it, what will happen next is told in these words."""
    task_id = done(queue, clock, receiver)
    for _ in range(attempt - 1):
        queue.settle(queue.claim_reply("c"), delivered=False, error="away")
        clock.advance(2)
    queue.claim_reply("d")
    clock.advance(seconds)
    said = "" if attempt == 1 else " (away)"
    delivery = f"'d' holds the reply under fence {attempt}, {lease}; {attempt} of 3 attempts used{said}"
    assert (RECEIVED, BY_W, DONE, delivery, then) == told(queue, task_id)


def test_explain_tells_no_payload(queue):
    """What a message asks for is nobody's business who only wants to know how it stands."""
    task_id = received(queue, payload={"password": "hunter2"})
    assert "hunter2" not in str(queue.explain(task_id))


def test_explain_the_whole_way(queue, receiver):
    """After a confirmed delivery all four stages are over, and the timeline has every step."""
    task_id = queue.receive(envelope(), AUTH).task_id
    queue.finish(queue.claim("w"), 1)
    queue.dispatch_once(receiver)
    story = queue.explain(task_id)
    assert "nothing: all four stages are over" == story.next
    assert ["pending", "running", "done", "pending", "sending", "sent"] == [step.to_state for step in story.timeline]


def test_counts(queue):
    """Counts tell the four facts in numbers."""
    for name in "abc":
        queue.receive(envelope(name), AUTH)
    queue.finish(queue.claim("w"), 1)
    queue.claim("w")
    counts = queue.counts()
    assert (3, {"pending": 1, "running": 1}) == (counts.received, dict(counts.open))
    assert (1, 0, 1) == (counts.ended["done"], counts.ended["failed"], counts.delivery["pending"])
