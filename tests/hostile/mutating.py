"""Envelopes and lines that were good, and that a seeded hand has spoilt."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime
from typing import Any, Final

from tests.model.things import Thing
from tests.model.values import EDGE_KEYS, NOT_INTS, NOT_KEYS, SURROGATE, Shout, knotted, nested

SENDER: Final = "agent-a"
CANARY: Final = "canary-5b1f"
"""Stands in everything that is refused, and must not stand in what is said of it."""


class Sum(int):
    """A subclass of int."""


class Box(dict[str, Any]):
    """A subclass of dict."""


KEYS: Final = [
    *NOT_KEYS,
    CANARY + "\0",
    CANARY * 20,
    SURROGATE + CANARY,
    *EDGE_KEYS,
    f"'; DROP TABLE tasks; -- {CANARY}",
]
INTS: Final = [*NOT_INTS, Sum(2), 0, 1, 9, 10, 11, 2**31, 2**31 - 1, -(2**63), 1e300, "9", CANARY]
DEADLINES: Final = [
    4e9, 4 * 10**9, -4e9, 0, -0.0, 2.0**53, 2**53 - 1, -(2**53), 10**400, math.nan, math.inf, True, None, "4e9", CANARY,
    datetime(2100, 1, 1, tzinfo=UTC), datetime(2100, 1, 1), Sum(4 * 10**9), [4e9],  # noqa: DTZ001 - hostile
]  # fmt: skip
LEAVES: Final = [
    math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e308, -0.0, 2**53, SURROGATE + CANARY, "\0", CANARY,
    "\u2028", "", (1, 2), {1}, b"x", Sum(1), Shout(CANARY), Box(a=1), {1: 2}, {None: 1},
    {SURROGATE: 1}, {CANARY: object()}, None, True, datetime(2100, 1, 1, tzinfo=UTC), 1j, range(3),
]  # fmt: skip
PAYLOADS: Final = [
    nested(16), nested(17), nested(200), knotted(), {"a": "x" * 65_528}, {"a": "x" * 65_529}, {"a": "\u00e9" * 40_000},
    {str(number): number for number in range(10_000)}, {str(number): number for number in range(10_001)}, {}, [],
    "text", None, Box(a=1), {"a": [[]] * 5000}, {"a": {"b": [1, {"c": None}]}},
]  # fmt: skip
FIELDS: Final = {
    "message_id": KEYS,
    "sender": [*KEYS, "agent-b"],
    "payload": PAYLOADS,
    "deadline": DEADLINES,
    "max_attempts": INTS,
    "hops": INTS,
    "kind": ["result", "Task", "", None, Shout("task"), b"task", CANARY],
    "queue": KEYS,
    "priority": INTS,
}


def good(number: int) -> dict[str, Any]:
    """The fields of an envelope with which nothing is wrong."""
    return {
        "message_id": f"m-{number}",
        "sender": SENDER,
        "payload": {"n": number, "text": CANARY},
        "deadline": 4e9,
        "max_attempts": 3,
        "hops": 0,
        "kind": "task",
        "queue": "default",
        "priority": 0,
    }


def spoilt(hand: random.Random, number: int) -> Thing:
    """An envelope of which one to three things were changed; a few are still good."""
    fields = good(number)
    for _ in range(hand.choice((1, 1, 1, 2, 3))):
        name = hand.choice(list(FIELDS))
        if name == "payload" and hand.random() < 0.7:
            fields["payload"] = _spoilt_inside(hand, number)
        else:
            fields[name] = hand.choice(FIELDS[name])
    return Thing(hand.choice(["Envelope"] * 19 + ["Envelope*"]), fields)


def _spoilt_inside(hand: random.Random, number: int) -> dict[str, Any]:
    leaf = hand.choice(LEAVES)
    for _ in range(hand.randrange(17)):
        leaf = [number, leaf] if hand.random() < 0.5 else {f"k{hand.randrange(5)}": leaf}
    return {"n": number, "inside": leaf}


PIECES: Final = (
    b"NaN", b"-Infinity", b"1e999", b"-1e999", b"1E+400", b'"\\ud800"', b'"\\u0000"', b"\xff", b"\xc0\x80",
    b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\0", b"'", b'"', b"{", b"}", b"[", b"]", b",", b":",
    b"[" * 2000, b'{"a":' * 500, b"9" * 5000,
    b'"deadline":1,', b'"payload":{},', b'"message_id":"m",', b'"extra":1,', b"null", b"true", b"//x", b"\t", b"\x7f",
    b"\xe2\x80\xa8", b"-0", b"01", b".5", b"0x10", b"1_000",
)  # fmt: skip


def line(hand: random.Random, number: int) -> bytes:
    """A line of JSON of which some bytes were cut out, repeated, exchanged, or put in."""
    fields = good(number)
    text = json.dumps(fields, ensure_ascii=hand.random() < 0.5).encode()
    for _ in range(hand.choice((1, 1, 2, 4))):
        at, end = sorted((hand.randrange(len(text) + 1), hand.randrange(len(text) + 1)))
        how = hand.randrange(5)
        piece = hand.choice(PIECES)
        if how == 0:
            text = text[:at] + piece + text[at:]
        elif how == 1:
            text = text[:at] + piece + text[min(end, at + 12) :]
        elif how == 2:
            text = text[:at] + text[min(end, at + 20) :]
        elif how == 3:
            text = text[:end] + text[at:]
        else:
            text = text[:at] + bytes([hand.randrange(256)]) + text[at + 1 :]
    return text
