"""What a verb that holds nothing is told: no claim, no delivery, no key, nothing due; and nothing is changed by it."""

from __future__ import annotations

import dataclasses

import pytest

from recovery import Fenced, InvalidEnvelope, Misconfigured, Settlement
from recovery.repositories import OutboxRepository, TaskRepository
from recovery.repositories.journal import JournalRepository
from recovery.repositories.receipts import REPLY_BYTES_MAX
from recovery.settings import Settings
from tests.plugins.queues import AUTH, envelope

NO_KEYS = ["", "x" * 129, "a\0b", "a\ud800", b"a", None, 7]


@pytest.mark.parametrize("verb", ["renew", "fail", "release", "finish", "finish_and_claim"])
@pytest.mark.parametrize("bad", [None, "claim", {"task_id": "x"}, object()], ids=["None", "str", "dict", "object"])
def test_what_is_no_claim(queue, stored, verb, bad):
    """It is refused as a value of the wrong kind, and not as a claim that was lost."""
    queue.receive(envelope(), AUTH)
    queue.claim("w")
    before = stored.contents()
    more = {"renew": (), "release": (), "fail": ("why",)}.get(verb, (1,))
    with pytest.raises(InvalidEnvelope) as caught:
        getattr(queue, verb)(bad, *more)
    assert "claim" == caught.value.field
    assert before == stored.contents()


@pytest.mark.parametrize("bad", [None, "delivery", object()], ids=["None", "str", "object"])
def test_what_is_no_delivery(queue, bad):
    """The same for a delivery, whether its lease is to be longer or its end to be told."""
    for call in (queue.renew_reply, lambda one: queue.settle(one, delivered=True)):
        with pytest.raises(InvalidEnvelope) as caught:
            call(bad)
        assert "delivery" == caught.value.field


@pytest.mark.parametrize("name", ["delivered", "permanent"])
@pytest.mark.parametrize("bad", [None, 1, 0, "yes"], ids=repr)
def test_an_outcome_that_is_neither(queue, stored, name, bad):
    """`delivered` and `permanent` are True or False and nothing that is like them: 1 is not a confirmation."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    held = queue.claim_reply("d")
    before = stored.contents()
    with pytest.raises(InvalidEnvelope) as caught:
        queue.settle(held, **{"delivered": False, name: bad})
    assert name == caught.value.field
    items = [Settlement(held, **{"delivered": False, name: bad})]
    assert [InvalidEnvelope] == [type(one.error) for one in queue.settle_batch(items)]
    assert before == stored.contents()


@pytest.mark.parametrize("fence", [True, 1.0], ids=repr)
def test_a_done_task_is_not_finished_by_what_is_like_its_fence(queue, stored, fence):
    """Asked again with the same result, only the very fence is answered quietly; 1.0 and True are none."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    queue.finish(claim, 1)
    queue.finish(claim, 1)
    before = stored.contents()
    with pytest.raises(Fenced):
        queue.finish(dataclasses.replace(claim, fence=fence), 1)
    assert before == stored.contents()


@pytest.mark.parametrize("key", NO_KEYS, ids=repr)
def test_what_is_no_key_finds_nothing(queue, receiver, stored, clock, key):
    """Looking up what can be no id finds nothing, in a repository as behind a door."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    before = stored.contents()
    if key is not None:
        assert [] == queue.replies(key)
    assert queue.task(key) is None
    assert not queue.cancel(key)
    assert not receiver.seen(key)
    with stored.engine.begin() as connection:
        settings = Settings(clock=clock)
        assert [] == JournalRepository(connection, settings).of(key)
        assert not TaskRepository(connection, settings).settle_one(key)
        assert not OutboxRepository(connection, settings).settle_one(key)
    assert before == stored.contents()


def test_settling_one_that_is_not_due(queue, clock, stored):
    """What somebody else settled since it was found to be due is left as it is, and not counted."""
    ids = [queue.receive(envelope(name), AUTH).task_id for name in ("running", "pending", "ended")]
    queue.cancel(ids[2])
    assert ids[0] == queue.claim("w").task_id
    reply = queue.claim_reply("d").reply_id
    before = stored.contents()
    with stored.engine.begin() as connection:
        settings = Settings(clock=clock)
        assert [False] * 3 == [TaskRepository(connection, settings).settle_one(one) for one in ids]
        assert not OutboxRepository(connection, settings).settle_one(reply)
    assert before == stored.contents()
    clock.advance(10)
    with stored.engine.begin() as connection:
        assert [True, False, False] == [TaskRepository(connection, settings).settle_one(one) for one in ids]
        assert OutboxRepository(connection, settings).settle_one(reply)
        assert not OutboxRepository(connection, settings).settle_one(reply)
    assert ("pending", "pending") == (queue.task(ids[0]).state, queue.replies(ids[2])[0].state)


def test_open_work(queue):
    """A queue has open work while one of its tasks is pending or running, and another queue's does not count."""
    assert not queue.has_open()
    queue.receive(envelope(queue="mail"), AUTH)
    assert [False, True, True] == [queue.has_open(*names) for names in ((), (("mail",),), (("default", "mail"),))]
    claim = queue.claim("w", ("mail",))
    assert queue.has_open(("mail",))
    queue.finish(claim, 1)
    assert not queue.has_open(("mail",))


def test_a_reply_beyond_every_limit(receiver, stored):
    """No queue can be told to allow a reply of this size, so that a receiver refuses it before it is stored."""
    with pytest.raises(InvalidEnvelope) as caught:
        receiver.accept("reply:1", "x" * (REPLY_BYTES_MAX + 1))
    assert ("payload", REPLY_BYTES_MAX) == (caught.value.field, caught.value.limit)
    assert [] == stored.rows("receipts")


class Promise:
    """Something that can be awaited, and is no coroutine."""

    def __await__(self):
        yield


def test_an_effect_that_only_promises(receiver, stored):
    """An effect that returns what has still to be awaited would never happen: refused, and there is no receipt."""

    async def later():
        raise AssertionError

    for promise in (Promise, later):
        with pytest.raises(Misconfigured, match="awaitable"):
            receiver.accept("reply:1", '"x"', lambda *_, made=promise: made())
    assert [] == stored.rows("receipts")
