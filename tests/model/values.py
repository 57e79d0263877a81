"""What the machine hands in: good values, values at the edge, and hostile ones."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from tests.model.ledger import Knobs, Wait
from tests.model.things import Thing


class Shout(str):
    """A subclass of str, which is refused wherever a str is wanted."""

    __slots__ = ()


SURROGATE = "half \ud83d"
NOT_KEYS: list[Any] = ["", "a" * 129, "\u00e9" * 65, "a\0b", "line\nbreak", "\x85", SURROGATE, b"m-1", 1, None, True]
NOT_KEYS += [Shout("m-1"), ["m-1"], "x" * 200_000]
NOT_INTS: list[Any] = [True, 1.0, "1", None, -1, 10**30, math.nan, [1]]
EDGE_KEYS = [
    "A",
    "a",
    "a ",
    "\u00e9",
    "e\u0301",
    "k" * 128,
    "\u00e9" * 64,
    "'; DROP TABLE tasks; --",
    "%s :p_now ?",
    "\U0001f600",
]
QUEUES = ["default", "urgent", "Default"]
OWNERS = ["worker-1", "worker-1", "worker-1", "worker-2", "\u00f6wner"]


def mostly(good: list[Any], hostile: list[Any], share: int = 8) -> st.SearchStrategy[Any]:
    """Values of which about one in `share` is hostile."""
    hostile_now = st.integers(0, share - 1).map(lambda number: number == share - 1)
    return hostile_now.flatmap(lambda bad: st.sampled_from(hostile if bad else good))


def nested(depth: int) -> Any:
    """A payload whose innermost value is so deep."""
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 and level < depth - 1 else {"n": value}
    return value if isinstance(value, dict) else {"n": value}


def knotted() -> dict[str, Any]:
    """A payload that contains itself."""
    knot: dict[str, Any] = {}
    knot["self"] = [knot]
    return knot


def sized(bytes_wanted: int) -> dict[str, Any]:
    """A payload of so many bytes of canonical JSON, most of them of two bytes each."""
    rest = bytes_wanted - len('{"t":""}')
    return {"t": "\u00e9" * (rest // 2) + "x" * (rest % 2)}


PAYLOADS: list[Any] = [{}, {"n": 1}, {"n": 1.0}, {"n": True}, {"nul": "a\0b"}, {"b": [1, {"c": None}], "a": "\u00e9"}]
PAYLOADS += [{"big": 2**70, "tiny": 5e-324, "most": 1.7976931348623157e308}, nested(15), nested(16), sized(65_536)]
PAYLOADS += [{"": ""}, {"n": -0.0}, {"list": list(range(9_999))}, {"\U0001f600": "\u2028", "\uffff": 1}]
NOT_JSON: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    SURROGATE,
    (1,),
    {1},
    b"x",
    Shout("x"),
    1j,
    {1: 2},
    {None: 1},
]
NOT_PAYLOADS: list[Any] = [None, [], "text", 1, {"list": list(range(10_000))}, nested(17), nested(60), knotted()]
NOT_PAYLOADS += [{"n": bad} for bad in NOT_JSON] + [
    {SURROGATE: 1},
    sized(65_537),
    {"t": "x" * 300_000},
    {"n": [[knotted()]]},
]
RESULTS: list[Any] = [None, 1, 1.0, True, "text", "a\0b", [], {"ok": [1, "\u00e9"]}, -0.0, 2**70, "x" * 2046]
NOT_RESULTS: list[Any] = [*NOT_JSON, {SURROGATE: 1}, "x" * 2047, "\u00e9" * 1024, nested(17), knotted()]
REASONS: list[Any] = ["no", "", "nul \0 here", SURROGATE, "x" * 5000, "\u00e9" * 1500, "y" * 2047 + "\0", None, 1, 1.5]
REASONS += [ValueError("it broke"), b"bytes", ["list"], "{'; DROP TABLE journal; --", "\udc80" * 600]

PAST_OR_COMING = [-1.0, 0.0, 1.0, 2.0, 9.0, 10.0, 12.0, 30.0, 30.0, 1000.0, 1000.0, 1000.0]
NOT_DEADLINES: list[Any] = [True, None, "2000", math.nan, math.inf, 2.0**53, -(2**53), 10**400]
NOT_DEADLINES += [datetime(2030, 1, 1)]  # noqa: DTZ001 - a naive one is refused
AT: list[Any] = [2000, 2000.0, 2.0**53 - 1, -(2**53) + 1, datetime(2030, 1, 1, tzinfo=UTC)]

KNOBS = [
    Knobs(result_bytes_max=2048, backoff=Wait(2.0, 2.0)),
    Knobs(result_bytes_max=2048, lease_seconds=4.0, backoff=Wait(1.0, 2.0, 3.0), delivery_backoff=Wait(0.5, 3.0)),
    Knobs(result_bytes_max=2048, backoff=Wait(0.0), delivery_backoff=Wait(0.0), delivery_attempts=1, max_hops=1),
]

message_ids = mostly([f"m-{number}" for number in range(8)] + EDGE_KEYS, NOT_KEYS, 12)
good_ids = st.sampled_from([f"m-{number}" for number in range(12)])
payloads = mostly(PAYLOADS, NOT_PAYLOADS, 10)
results = mostly(RESULTS, NOT_RESULTS, 10)
reasons = st.sampled_from(REASONS)
owners = mostly(OWNERS, NOT_KEYS, 15)
limits = mostly([1, 1, 1, 2, 2, 3, 10_000], [0, 10_001, *NOT_INTS], 12)
queues = mostly(
    [
        ("default",),
        ["default"],
        ("urgent",),
        ("default", "urgent"),
        ("Default", "default", "urgent"),
        ("default",) * 32,
    ],
    ["default", (), ("default",) * 33, ("",), {"default"}, None, ("a\0",), (1,), [SURROGATE], ("x" * 200,)],
    12,
)
deadlines = mostly(
    [("in", seconds) for seconds in PAST_OR_COMING] + [("at", moment) for moment in AT],
    [("at", moment) for moment in NOT_DEADLINES],
    20,
)
auths = mostly(
    ["agent-a", "agent-a", "agent-a", "agent-b"],
    ["agent-c", None, "", Shout("agent-a"), "not an AuthContext", "special"],
    15,
)

# Each change is one field of an envelope; about one in six is hostile.
CHANGES: list[dict[str, Any]] = [{}, {}, {}, {"max_attempts": 1}, {"max_attempts": 2}, {"max_attempts": 10}]
CHANGES += [{"priority": 9}, {"priority": 5}, {"priority": 1}, {"queue": "urgent"}, {"queue": "Default"}]
CHANGES += [
    {"priority": 9, "max_attempts": 1},
    {"priority": 8},
    {"priority": 2},
    {"hops": 1},
    {"hops": 4},
    {"hops": 2**31 - 1},
    {"queue": "urgent", "priority": 9, "max_attempts": 1},
]
BAD_CHANGES: list[dict[str, Any]] = [{"max_attempts": bad} for bad in [0, 11, *NOT_INTS]]
BAD_CHANGES += [{"priority": bad} for bad in [10, *NOT_INTS]] + [{"hops": bad} for bad in [2**31, *NOT_INTS]]
BAD_CHANGES += [{"queue": bad} for bad in NOT_KEYS] + [{"kind": bad} for bad in ["result", None, Shout("task")]]
BAD_CHANGES += [{"sender": bad} for bad in ["agent-b", "agent-c", None, Shout("agent-a")]]
first_messages = st.lists(
    st.tuples(st.sampled_from([1000.0, 1000.0, 1000.0, 30.0, 10.0, -1.0]), st.sampled_from(CHANGES)),
    min_size=3,
    max_size=6,
)
# By number: the name that Hypothesis makes of a list of such payloads is 92 kB long.
good_payloads = st.integers(0, len(PAYLOADS) - 1).map(lambda number: PAYLOADS[number])
batch_items = st.tuples(message_ids, good_payloads, deadlines, st.sampled_from(CHANGES))
changes = mostly(CHANGES, BAD_CHANGES, 8)
again = mostly([{}], [{"payload": {"n": 2}}, {"max_attempts": 9}, {"queue": "other"}, {"priority": 7}, {"hops": 2}], 2)

# How a claim is spoilt before it is handed in; most are not.
TWISTS: list[Any] = [{"fence": bad} for bad in [0, -1, 2**63, 2**70, True, 1.0, "1", None, math.nan]]
TWISTS += [{"owner": bad} for bad in ["worker-9", *NOT_KEYS]] + [{"fence": step} for step in ("up", "down", "float")]
TWISTS += [{"id": bad} for bad in ["0" * 64, "reply:" + "0" * 64, "another", *NOT_KEYS]]
TWISTS += [{"is": bad} for bad in [None, "claim", 1, (), "subclass"]]
UNTWISTED = [{}, {}, {}, {}, {}, {"lease_until": 1e9}, {"payload": {"other": 1}}, {"deadline": 0.0}]
NEAR_MISSES: list[Any] = [
    {"fence": "down"},
    {"fence": "up"},
    {"id": "another"},
    {"owner": "worker-2"},
    {"fence": "float"},
]
twists = mostly(UNTWISTED, TWISTS, 12) | mostly(UNTWISTED, NEAR_MISSES, 4)

ids_asked = mostly(["known"], ["0" * 64, *NOT_KEYS], 8)
ways = st.sampled_from(["stores", "stores", "stores", "loses the answer", "slow", "refuses", "breaks"])
ways |= st.sampled_from(["finds it invalid", "answers another", "answers yes", "none"])
effects = st.sampled_from([None, None, "breaks"])
reply_ids = mostly(["known"], ["reply:" + "0" * 64, "r-1", *NOT_KEYS], 4)
reply_payloads = mostly(["the stored one", '{"other":1}', ""], ["\0", SURROGATE, None, b"x", Shout("x")], 10)
outcomes = st.sampled_from(
    [{"delivered": True}, {"delivered": True, "error": "not looked at", "permanent": True}, {"delivered": False}]
    + [{"delivered": False, "error": reason, "permanent": False} for reason in REASONS]
    + [{"delivered": False, "error": "for good", "permanent": True}, {"delivered": 1}, {"delivered": None}]
    + [{"delivered": False, "permanent": bad} for bad in (None, 0, "no")]
)


def envelope(message_id: Any, payload: Any, deadline: Any, change: dict[str, Any]) -> Thing:
    """An envelope of agent-a."""
    values = {"message_id": message_id, "sender": "agent-a", "payload": payload, "deadline": deadline}
    return Thing(
        "Envelope", values | {"max_attempts": 3, "hops": 0, "kind": "task", "queue": "default", "priority": 0} | change
    )


def authority(name: Any) -> Any:
    """An AuthContext of that principal, or what is none."""
    if name == "not an AuthContext":
        return {"principal": "agent-a"}
    return (
        Thing("AuthContext*", {"principal": "agent-a"})
        if name == "special"
        else Thing("AuthContext", {"principal": name})
    )


def twisted(claim: Thing, twist: dict[str, Any], key: str, other: str) -> Any:
    """A claim or delivery, spoilt; `other` is the id of another row."""
    if "is" in twist:
        return Thing(claim.kind + "*", claim.fields) if twist["is"] == "subclass" else twist["is"]
    changed = dict(twist)
    if "id" in changed:
        identity = changed.pop("id")
        changed[key] = other if identity == "another" else identity
    step = {"up": claim["fence"] + 1, "down": claim["fence"] - 1, "float": float(claim["fence"])}
    if isinstance(changed.get("fence"), str) and changed["fence"] in step:
        changed["fence"] = step[changed["fence"]]
    return claim.but(**{name: value for name, value in changed.items() if name in {*claim.fields}})
