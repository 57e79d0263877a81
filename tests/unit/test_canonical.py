"""The bytes that identities are made of: golden values, which no release may change."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery import canonical

DEMO_TASK = "bd09939f3bdb800b2ac17a92671ec9f53bb9a79f3c6ce81f465ea21257f41836"

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


def demo_fingerprint(**changed: Any) -> str:
    """The fingerprint of the demo message, with some fields `changed`."""
    fields: dict[str, Any] = {
        "deadline": 2000.0,
        "hops": 0,
        "kind": "task",
        "max_attempts": 3,
        "message_id": "demo-1",
        "payload": '{"text":"héllo"}',
        "sender": "agent-a",
    }
    return canonical.fingerprint(**{**fields, **changed})


def reordered(value: object) -> object:
    """The same value, with the members of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


# Canonical JSON


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("null", None),
        ("true", True),
        ("1", 1),
        ("1.0", 1.0),
        ("-0.0", -0.0),
        ("1e+16", 1e16),
        ("5e-324", 5e-324),
        (str(2**70), 2**70),
        ('""', ""),
        ('"é✓😀"', "é✓😀"),
        ('"\\u0000\\n\\"\\\\/\x7f\u2028"', '\0\n"\\/\x7f\u2028'),
        ("[]", []),
        ("{}", {}),
        ('[1,[2,{"a":[]}]]', [1, [2, {"a": []}]]),
        ('{"":0,"A":1,"a":2,"é":3}', {"é": 3, "a": 2, "A": 1, "": 0}),
    ],
)
def test_canonical_json_writes_one_known_text(expected: str, value: object) -> None:
    """Sorted keys, no blanks, non-ASCII as it is, and the numbers as Python prints them."""
    assert expected == canonical.canonical_json(value)


def test_keys_are_sorted_by_code_point_and_not_by_utf16() -> None:
    """U+FF21 stands before U+1F600, although UTF-16 would put the surrogates of the second one first."""
    assert '{"\uff21":1,"\U0001f600":2}' == canonical.canonical_json({"\U0001f600": 2, "\uff21": 1})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_canonical_json_refuses_what_json_does_not_have(number: float) -> None:
    """NaN and the infinities are refused, also deep inside."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical.canonical_json({"a": [number]})


@settings(deadline=None)
@given(VALUES)
def test_canonical_json_reads_back_as_the_value(value: object) -> None:
    """Nothing is lost: the text, read back, is the value and gives the same text again."""
    text = canonical.canonical_json(value)
    assert value == json.loads(text)
    assert text == canonical.canonical_json(json.loads(text))


@settings(deadline=None)
@given(VALUES)
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: object) -> None:
    """Two objects that are equal have one text, however they were put together."""
    assert canonical.canonical_json(value) == canonical.canonical_json(reordered(value))


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_canonical_object_of_encoded_members_is_the_text_of_the_whole(members: dict[str, object]) -> None:
    """Encoding the members first gives the same bytes as encoding the object at once."""
    encoded = {key: canonical.canonical_json(item) for key, item in members.items()}
    assert canonical.canonical_json(members) == canonical.canonical_object(encoded)


def test_canonical_object_takes_its_members_as_they_are() -> None:
    """A member is a text already: it is put in and not encoded again, and keys are escaped."""
    assert '{"a\\"":[1],"b":{"z":null}}' == canonical.canonical_object({"b": '{"z":null}', 'a"': "[1]"})


# Ids


def test_the_check_value_of_the_contract() -> None:
    """`["agent-a","demo-1"]` gives the reply id that the contract prints."""
    assert DEMO_TASK == canonical.task_id("agent-a", "demo-1")
    assert f"reply:{DEMO_TASK}" == canonical.reply_id(canonical.task_id("agent-a", "demo-1"))


def test_a_task_id_is_made_from_utf8() -> None:
    """Golden: non-ASCII goes into the hash as UTF-8 and not as an escape."""
    assert "db3a552d96e0e1e014430a997e0bab550f2fa545a6acdb7950a78d57aea97e29" == canonical.task_id("agént", "✓")


@pytest.mark.parametrize(
    ("principal", "message_id"),
    [
        ("agent-b", "demo-1"),
        ("agent-a", "Demo-1"),
        ("agent-a", "demo-1 "),
        ("agent-a,demo", "1"),
        ("demo-1", "agent-a"),
    ],
)
def test_other_identities_have_other_task_ids(principal: str, message_id: str) -> None:
    """Identity is by bytes, and the border between principal and message id is part of it."""
    assert DEMO_TASK != canonical.task_id(principal, message_id)


def test_unicode_normal_forms_are_different_messages() -> None:
    """Nothing is normalised: é as one character and as two are two messages."""
    assert canonical.task_id("a", "\u00e9") != canonical.task_id("a", "e\u0301")


def test_content_hash_is_sha256_of_utf8() -> None:
    """Golden values, one of them from the standard itself (the empty text)."""
    assert "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" == canonical.content_hash("")
    assert "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c" == canonical.content_hash("é")


# Fingerprints


@pytest.mark.parametrize(
    ("expected", "changed"),
    [
        ("v1:151ae03b4762e0417a6d7102e226b53c90a684e2904805215c37e338c105c3ec", {}),
        (
            "v1:9f97d796a45e318a113267259f2f39e57e1fd7f6bd1884065688e648fa751ff2",
            {
                "deadline": 1767225600.25,
                "hops": 2_147_483_647,
                "max_attempts": 10,
                "message_id": "m",
                "payload": "{}",
                "sender": "s",
            },
        ),
        ("v1:ecdf673a6bc6434da355fb209a837db4c1bfa0dda54fe9f3fa66b9780572561a", {"payload": '{"n":1}'}),
        ("v1:45ee2af8636211f209deb211b5b5c386372f7d9cfc0dccb942c4e4730d49db6c", {"payload": '{"n":1.0}'}),
        (
            "v1:291a7291c14917fb817ad14941255d1df4c4706c8479c2828e7e7eb5a393786c",
            {"extras": {"zone": ["a", None], "priority": 5}},
        ),
    ],
)
def test_golden_fingerprints(expected: str, changed: dict[str, Any]) -> None:
    """These values are in databases: a release that changes one turns every replay into a collision."""
    assert expected == demo_fingerprint(**changed)


def test_a_fingerprint_is_versioned_sha256_of_a_text_that_can_be_written_down() -> None:
    """The listed fields and nothing else, sorted, with the payload as it was encoded."""
    text = (
        '{"deadline":2000.0,"hops":0,"kind":"task","max_attempts":3,'
        '"message_id":"demo-1","payload":{"text":"héllo"},"sender":"agent-a"}'
    )
    assert "v1:" + hashlib.sha256(text.encode()).hexdigest() == demo_fingerprint()


@pytest.mark.parametrize(
    "changed",
    [
        {"deadline": 2000.5},
        {"hops": 1},
        {"kind": "result"},
        {"max_attempts": 4},
        {"message_id": "demo-2"},
        {"payload": '{"text":"hello"}'},
        {"sender": "agent-b"},
        {"extras": {"priority": 5}},
    ],
)
def test_every_field_takes_part_in_the_fingerprint(changed: dict[str, Any]) -> None:
    """Whichever field changes, the message is another one."""
    assert demo_fingerprint() != demo_fingerprint(**changed)


@pytest.mark.parametrize(("one", "other"), [(2000, 2000.0), (0.0, -0.0), (0, -0.0)])
def test_deadlines_that_are_equal_have_one_fingerprint(one: float, other: float) -> None:
    """A deadline is a double: 2000 and 2000.0 do not differ, and neither do 0.0 and -0.0."""
    assert demo_fingerprint(deadline=one) == demo_fingerprint(deadline=other)


def test_no_extras_leave_the_fingerprint_as_it_was() -> None:
    """A later field at its default takes no part, so that a replay after an upgrade never collides."""
    assert demo_fingerprint() == demo_fingerprint(extras={})


@pytest.mark.parametrize("name", ["deadline", "hops", "kind", "max_attempts", "message_id", "payload", "sender"])
def test_an_extra_cannot_take_the_place_of_a_listed_field(name: str) -> None:
    """An extra with the name of a listed field would silently replace it: refused, by name."""
    with pytest.raises(ValueError, match=name):
        demo_fingerprint(extras={name: "other"})


def test_the_names_that_are_taken_are_told_in_order() -> None:
    """All of them, and in the same order each time."""
    with pytest.raises(ValueError, match=r"already: deadline, hops, payload, sender\.$"):
        demo_fingerprint(extras=dict.fromkeys(["sender", "zone", "payload", "hops", "deadline"], 1))


# Replies


@pytest.mark.parametrize(
    ("expected", "state", "result_text"),
    [
        ('"result":{"a":[1,2.5,"é"]},"status":"done"', "done", '{"a":[1,2.5,"é"]}'),
        ('"result":null,"status":"done"', "done", "null"),
        ('"result":"deadline reached","status":"expired"', "expired", '"deadline reached"'),
        ('"result":"hop budget reached","status":"hop_limit"', "hop_limit", '"hop budget reached"'),
        ('"result":"attempts exhausted","status":"failed"', "failed", '"attempts exhausted"'),
        ('"result":"cancelled by scheduler","status":"cancelled"', "cancelled", '"cancelled by scheduler"'),
    ],
)
def test_golden_reply_bytes(expected: str, state: str, result_text: str) -> None:
    """The receiver compares these bytes: every one of them is pinned."""
    whole = f'{{"kind":"result",{expected},"task_id":"{DEMO_TASK}"}}'
    assert whole.encode() == canonical.reply_text(DEMO_TASK, state, result_text).encode()


@settings(deadline=None)
@given(VALUES)
def test_a_reply_is_the_canonical_json_of_its_members(result: object) -> None:
    """Putting encoded texts together gives what encoding the whole reply would."""
    whole = {"kind": "result", "result": result, "status": "done", "task_id": DEMO_TASK}
    text = canonical.reply_text(DEMO_TASK, "done", canonical.canonical_json(result))
    assert canonical.canonical_json(whole) == text
