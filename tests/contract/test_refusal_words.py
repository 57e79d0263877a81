"""What a refusal says, word for word, and which field and limit it names: it is all that its reader has."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from recovery import InvalidEnvelope, Misconfigured, PayloadCollision, StatementFailed
from recovery.repositories import receipts
from recovery.repositories.batches import BATCH_MAX
from recovery.repositories.outbox import REPLIES_MAX
from recovery.repositories.receipts import REPLY_BYTES_MAX
from tests.contract.swallowing import DELIVERIES, ENDS, swallow
from tests.plugins.queues import AUTH, SOURCES, envelope

NO_CLAIM = ("a Claim is wanted, as claim returned it.", "claim", None)
NO_DELIVERY = ("a Delivery is wanted, as claim_reply returned it.", "delivery", None)
NOT_TEXT = "the payload holds a NUL or a lone surrogate, which is not JSON text."
UNCHANGED = "a row that its claim still owns was not changed; the transaction was rolled back."
PLAIN = "apply must be a plain function: it runs on the receipt's own connection."


def said(caught):
    """The sentence of a refusal, with the field and the limit that it names."""
    return str(caught.value), caught.value.field, caught.value.limit


def refused(call):
    """What a call says that is refused."""
    with pytest.raises(InvalidEnvelope) as caught:
        call()
    return said(caught)


def test_what_is_no_claim(queue):
    """Every verb of a claim says the same."""
    assert NO_CLAIM == refused(lambda: queue.renew("claim"))
    assert NO_CLAIM == refused(lambda: queue.finish("claim", 1))
    assert NO_CLAIM == refused(lambda: queue.finish_and_claim(_owned(), 1))
    assert NO_CLAIM == refused(lambda: queue.fail("claim", "no"))
    assert NO_CLAIM == refused(lambda: queue.release("claim"))
    (verdict,) = queue.finish_batch([("claim", 1)])
    error = verdict.error
    assert (("", None), NO_CLAIM) == ((verdict.identity, verdict.state), (str(error), error.field, error.limit))


def _owned():
    """Something that has an owner and is no claim."""
    return type("Owned", (), {"owner": "w"})()


ASKED = {
    "claim": (lambda queue: queue.claim(""), "owner"),
    "claim_batch": (lambda queue: queue.claim_batch(None, 1), "owner"),
    "too few tasks": (lambda queue: queue.claim_batch("w", 0), "limit"),
    "too many tasks": (lambda queue: queue.claim_batch("w", BATCH_MAX + 1), "limit"),
    "claim_reply": (lambda queue: queue.claim_reply(""), "owner"),
    "too few deliveries": (lambda queue: queue.claim_reply_batch("d", 0), "limit"),
    "too many deliveries": (lambda queue: queue.claim_reply_batch("d", BATCH_MAX + 1), "limit"),
    "too few replies": (lambda queue: queue.replies(limit=0), "limit"),
    "too many replies": (lambda queue: queue.replies(limit=REPLIES_MAX + 1), "limit"),
}


@pytest.mark.parametrize(("call", "field"), ASKED.values(), ids=ASKED.keys())
def test_what_is_asked_for(queue, call, field):
    """What cannot be asked for is named."""
    _, named, _ = refused(lambda: call(queue))
    assert field == named


def test_as_many_as_there_may_be(queue):
    """The bounds themselves can be asked for."""
    assert [[]] * 5 == [
        queue.claim_batch("w", BATCH_MAX),
        queue.claim_batch("w", 1),
        queue.claim_reply_batch("d", BATCH_MAX),
        queue.replies(limit=REPLIES_MAX),
        queue.replies(limit=1),
    ]


def test_what_is_no_pair(queue):
    """An item that is not a claim with its result."""
    expected = ("each item is a pair of a claim and its result.", "items", None)
    for items in ([None], [("claim",)], [["claim", 1]]):
        assert expected == refused(lambda items=items: queue.finish_batch(items))


def test_what_is_no_delivery(queue):
    """Every verb of a delivery says the same."""
    assert NO_DELIVERY == refused(lambda: queue.renew_reply("delivery"))
    assert NO_DELIVERY == refused(lambda: queue.settle("delivery", delivered=True))
    (verdict,) = queue.settle_batch(["delivery"])
    error = verdict.error
    assert ("a Settlement is wanted.", "items", None) == (str(error), error.field, error.limit)


@pytest.mark.parametrize(
    ("name", "outcome"), [("delivered", {"delivered": 1}), ("permanent", {"delivered": False, "permanent": None})]
)
def test_an_outcome_that_is_no_bool(queue, name, outcome):
    """The one that is none is named."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    held = queue.claim_reply("d")
    assert (f"{name} must be True or False.", name, None) == refused(lambda: queue.settle(held, **outcome))


def test_an_attempt_that_is_no_number(queue):
    """A delivery that was made up is refused before its wait is reckoned from its attempt."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    held = queue.claim_reply("d")
    for attempt in (-1, 2**31, 1.0):
        wrong = dataclasses.replace(held, attempt=attempt)
        _, field, _ = refused(lambda wrong=wrong: queue.settle(wrong, delivered=False))
        assert "delivery" == field
    assert "sent" == queue.settle(dataclasses.replace(held, attempt=2**31 - 1), delivered=True)


def test_what_is_too_many(queue):
    """A batch of claims and one of messages name what they are batches of."""
    items = (f"a batch has at most {BATCH_MAX} items.", "items", BATCH_MAX)
    assert items == refused(lambda: queue.finish_batch([("claim", 1)] * (BATCH_MAX + 1)))
    assert items == refused(lambda: queue.settle_batch(["delivery"] * (BATCH_MAX + 1)))
    assert BATCH_MAX == len(queue.settle_batch(["delivery"] * BATCH_MAX))
    messages = (f"a batch has at most {BATCH_MAX} messages.", "envelopes", BATCH_MAX)
    assert messages == refused(lambda: queue.receive_all([envelope()] * (BATCH_MAX + 1), AUTH))


def test_a_result_that_is_too_large(door, database_url, clock):
    """The bound is the queue's own, in bytes of JSON; what is just as large is stored, by each verb that finishes."""
    small = door.queue(database_url, allowed_sources=SOURCES, clock=clock, result_bytes_max=5)
    small.receive_all([envelope(name) for name in ("a", "b", "c")], AUTH)
    first, second, third = small.claim_batch("w", 3)
    for call in (lambda: small.finish(first, "abcd"), lambda: small.finish_and_claim(first, "\u00e9\u00e9")):
        assert ("result", 5) == refused(call)[1:]
    (verdict,) = small.finish_batch([(first, "abcd")])
    assert ("result", 5) == (verdict.error.field, verdict.error.limit)
    small.finish(first, "abc")
    assert ["done"] == [one.state for one in small.finish_batch([(second, "abc")])]
    assert small.finish_and_claim(third, "\u00e9a") is None


def test_what_cannot_be_iterated_over(queue):
    """It is said of messages; and of a bad one among them, its place."""
    expected = ("envelopes must be something that can be iterated over.", "envelopes", None)
    assert expected == refused(lambda: queue.receive_all(7, AUTH))
    with pytest.raises(InvalidEnvelope) as caught:
        queue.receive_all([envelope("a"), envelope("b", payload=float("nan"))], AUTH)
    assert ["in item 1 of the batch"] == caught.value.__notes__


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (7, ("a reply's payload is the text that the outbox stored.", "payload", None)),
        ("a\0b", (NOT_TEXT, "payload", None)),
        ("a\ud800", (NOT_TEXT, "payload", None)),
        ("\udfff", (NOT_TEXT, "payload", None)),
        ("x" * (REPLY_BYTES_MAX + 1), ("the payload is too large.", "payload", REPLY_BYTES_MAX)),
    ],
    ids=["number", "NUL", "first surrogate", "last surrogate", "large"],
)
def test_a_reply_that_is_no_text(receiver, payload, expected):
    """What a receiver refuses, and why."""
    assert expected == refused(lambda: receiver.accept("reply:1", payload))


def test_a_reply_that_is_as_large_as_it_may_be(receiver, monkeypatch):
    """The bound itself is accepted. It stands lower here: a text of 64 MiB is looked through for seconds."""
    monkeypatch.setattr(receipts, "REPLY_BYTES_MAX", 5)
    assert receiver.accept("reply:1", "12345").duplicate is False
    assert ("the payload is too large.", "payload", 5) == refused(lambda: receiver.accept("reply:2", "123456"))


@pytest.mark.parametrize("reply_id", ["", "a\0", "x" * 200, None, 7], ids=ascii)
def test_a_reply_without_an_id(receiver, reply_id):
    """It is said that it is the id."""
    _, field, _ = refused(lambda: receiver.accept(reply_id, '"x"'))
    assert "reply_id" == field
    assert receiver.seen(reply_id) is False


@pytest.mark.parametrize("apply", [7, "apply"])
def test_an_effect_that_is_no_function(receiver, apply):
    """What cannot be called is refused."""
    with pytest.raises(Misconfigured) as caught:
        receiver.accept("reply:1", '"x"', apply)
    assert PLAIN == str(caught.value)


def test_an_effect_that_does_not_end(receiver):
    """An effect that would have to be awaited is refused, before it is called or by what it returned."""
    given = []

    async def apply(*_):
        raise AssertionError

    def hidden(*_):
        given.append(apply())
        return given[0]

    with pytest.raises(Misconfigured) as caught:
        receiver.accept("reply:1", '"x"', apply)
    assert PLAIN == str(caught.value)
    with pytest.raises(Misconfigured) as caught:
        receiver.accept("reply:1", '"x"', hidden)
    assert "apply returned an awaitable; it must do its work before it returns." == str(caught.value)
    assert "CORO_CLOSED" == inspect.getcoroutinestate(given[0])
    assert receiver.seen("reply:1") is False


def test_other_content(queue, receiver):
    """A collision names what it is stored as."""
    queue.receive(envelope(), AUTH)
    task_id = queue.claim("w").task_id
    for call in (
        lambda: queue.receive(envelope(payload={"n": 2}), AUTH),
        lambda: queue.receive_all([envelope("b"), envelope("b", payload={"n": 2})], AUTH),
    ):
        with pytest.raises(PayloadCollision) as caught:
            call()
        assert caught.value.identity.startswith("message ")
    with pytest.raises(PayloadCollision) as caught:
        queue.receive(envelope(payload={"n": 2}), AUTH)
    assert f"message {task_id}" == caught.value.identity
    receiver.accept("reply:1", '"x"')
    with pytest.raises(PayloadCollision) as caught:
        receiver.accept("reply:1", '"y"')
    assert "reply:1" == caught.value.identity


@pytest.mark.parametrize("call", ENDS.values(), ids=ENDS.keys())
def test_a_task_that_silently_stays(queue, stored, call):
    """Where the database left a change of a task out, it is said what was not done."""
    queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    swallow(stored.engine, "UPDATE", "tasks")
    with pytest.raises(StatementFailed) as caught:
        call(queue, claim)
    assert UNCHANGED == str(caught.value)


@pytest.mark.parametrize("call", DELIVERIES.values(), ids=DELIVERIES.keys())
def test_a_reply_that_silently_stays(queue, stored, call):
    """The same of a reply."""
    queue.cancel(queue.receive(envelope(), AUTH).task_id)
    held = queue.claim_reply("d")
    swallow(stored.engine, "UPDATE", "outbox")
    with pytest.raises(StatementFailed) as caught:
        call(queue, held)
    assert UNCHANGED == str(caught.value)


def test_what_is_never_stored(queue, receiver, stored):
    """Where the database left out what is new, it is said what came and went."""
    swallow(stored.engine, "INSERT", "inbox")
    with pytest.raises(StatementFailed) as caught:
        queue.receive(envelope(), AUTH)
    again = "the same message came and went three times while it was received; send it again."
    assert again == str(caught.value)


def test_a_receipt_that_is_never_stored(receiver, stored):
    """The same of a receipt, and nothing is applied."""
    swallow(stored.engine, "INSERT", "receipts")
    with pytest.raises(StatementFailed) as caught:
        receiver.accept("reply:1", '"x"', lambda *_: pytest.fail("applied"))
    assert "the receipt vanished while it was compared; send the reply again." == str(caught.value)
