from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from recovery import AuthContext, Envelope, InvalidEnvelope, RecoveryError, Unauthorized
from tests.plugins.queues import AUTH, AUTH_B, envelope


class Text(str):
    """A subclass of str."""

    __slots__ = ()


class MyEnvelope(Envelope):
    """A subclass of Envelope."""


class MyAuth(AuthContext):
    """A subclass of AuthContext."""


def nested(depth: int) -> dict:
    """A payload whose innermost value lies `depth` deep."""
    value: dict = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def looped() -> dict:
    """A payload that holds itself."""
    value: dict = {}
    value["me"] = value
    return value


REFUSED = {
    "id empty": {"message_id": ""},
    "id long": {"message_id": "\u00e9" * 65},
    "id nul": {"message_id": "a\0"},
    "id control": {"message_id": "a\x85"},
    "id surrogate": {"message_id": "\ud800"},
    "id number": {"message_id": 7},
    "id subclass": {"message_id": Text("m")},
    "kind": {"kind": "result"},
    "deadline nan": {"deadline": float("nan")},
    "deadline inf": {"deadline": float("inf")},
    "deadline bool": {"deadline": True},
    "deadline big": {"deadline": 2**53},
    "deadline huge": {"deadline": 10**5000},
    "deadline text": {"deadline": "2000"},
    "deadline naive": {"deadline": datetime(2030, 1, 1)},  # noqa: DTZ001 - naive on purpose
    "attempts 0": {"max_attempts": 0},
    "attempts 11": {"max_attempts": 11},
    "attempts bool": {"max_attempts": True},
    "attempts float": {"max_attempts": 2.0},
    "hops negative": {"hops": -1},
    "hops big": {"hops": 2**31},
    "hops bool": {"hops": False},
    "payload list": {"payload": []},
    "payload none": {"payload": None},
    "payload key": {"payload": {1: 2}},
    "payload tuple": {"payload": {"a": (1,)}},
    "payload bytes": {"payload": {"a": b""}},
    "payload nan": {"payload": {"a": float("nan")}},
    "payload big int": {"payload": {"a": 10**400}},
    "payload surrogate": {"payload": {"a": "\udfff"}},
    "payload deep": {"payload": nested(17)},
    "payload many": {"payload": {"a": [0] * 10_001}},
    "payload large": {"payload": {"a": "x" * 65_536}},
    "payload loop": {"payload": looped()},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_refused_input_writes_nothing(queue, stored, change):
    """What section 2 refuses is an InvalidEnvelope and a ValueError that names the field; nothing is written."""
    before = stored.contents()
    with pytest.raises(InvalidEnvelope) as caught:
        queue.receive(envelope(**change), AUTH)
    assert isinstance(caught.value, ValueError)
    assert next(iter(change)) in caught.value.field
    assert before == stored.contents()


@pytest.mark.parametrize(
    "auth",
    [None, "agent-a", SimpleNamespace(principal="agent-a"), MyAuth("agent-a"), AUTH_B, AuthContext("agent-c")],
    ids=["none", "str", "lookalike", "subclass", "not the sender", "not allowed"],
)
def test_wrong_authority_is_unauthorized(queue, stored, auth):
    """Anything but the AuthContext of an allowed sender is Unauthorized, and nothing is written."""
    before = stored.contents()
    with pytest.raises(Unauthorized):
        queue.receive(envelope(), auth)
    assert before == stored.contents()


def test_no_source_is_allowed_by_default(door, database_url):
    """A queue that names no sources accepts from nobody."""
    closed = door.queue(database_url)
    with pytest.raises(Unauthorized):
        closed.receive(envelope(), AUTH)


@pytest.mark.parametrize(
    "wrong", [None, {}, MyEnvelope("m-1", "agent-a", {}, 2000.0)], ids=["none", "dict", "subclass"]
)
def test_only_an_envelope_is_received(queue, wrong):
    """Another type than Envelope is refused, before the authority is looked at."""
    with pytest.raises(InvalidEnvelope):
        queue.receive(wrong, None)


@pytest.mark.parametrize(
    "change",
    [
        {"message_id": "\u00e9" * 64},
        {"deadline": datetime(2030, 1, 1, tzinfo=UTC)},
        {"max_attempts": 10},
        {"payload": nested(16)},
        {"payload": {"a": "\0"}},
        {"payload": {"a": [None, True, 1, 1.5, "x"]}},
    ],
    ids=["id", "deadline", "attempts", "depth", "nul", "types"],
)
def test_what_is_just_allowed_reaches_the_worker(queue, change):
    """What lies on the allowed side of a limit is accepted, and its payload comes back as it was."""
    sent = envelope(**change)
    queue.receive(sent, AUTH)
    assert sent.payload == queue.claim("w").payload


@pytest.mark.parametrize("result", [float("nan"), object(), "x" * 1_048_576, "\ud800"])
def test_bad_result_leaves_the_claim_valid(queue, stored, result):
    """A result that breaks the rules raises, changes nothing, and the claim can still be finished."""
    ack = queue.receive(envelope(), AUTH)
    claim = queue.claim("w")
    before = stored.contents()
    with pytest.raises(InvalidEnvelope):
        queue.finish(claim, result)
    assert before == stored.contents()
    queue.finish(claim, "fine")
    assert '"fine"' == queue.task(ack.task_id).result


@pytest.mark.parametrize("reason", ["a\0b", "\ud800", "x" * 100_000, None, ValueError("no")])
def test_reasons_are_never_refused(queue, reason):
    """Whatever the reason is, the failure is stored, with at most 2 KiB of text."""
    ack = queue.receive(envelope(), AUTH)
    assert "failed" == queue.fail(queue.claim("w"), reason, retryable=False)
    said = queue.task(ack.task_id).reason
    assert len(said.encode()) <= 2048
    assert "\0" not in said


@pytest.mark.parametrize("identity", ["unknown", "", "a\0", "\ud800", "x" * 1000, None, 7])
def test_malformed_ids_find_nothing(queue, identity):
    """Looking up an id that is unknown or breaks the rules finds nothing."""
    assert queue.task(identity) is None
    assert queue.explain(identity) is None
    assert queue.cancel(identity) is False


@pytest.mark.parametrize("owner", ["", "a\0", "x" * 129, None])
def test_owner_is_a_text_key(queue, owner):
    """An owner that is no text key is refused as a ValueError of ours."""
    with pytest.raises(RecoveryError):
        queue.claim(owner)
