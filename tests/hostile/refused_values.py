"""What section 2 of the contract refuses: a row for each rule, with the field and the limit that must be named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from types import SimpleNamespace
from typing import Any, Final

from recovery import AuthContext, Envelope
from tests.model.values import Shout, knotted, nested

SENDER: Final = "agent-a"
FAR: Final = 4e9
SURROGATE: Final = "half \ud83d"


@dataclass(frozen=True)
class Row:
    """One rule: the field, a value that breaks it, and the limit that the refusal names, if the rule has one."""

    rule: str
    field: str
    value: Any
    limit: int | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}"


class Sum(int):
    """A subclass of int."""


class Box(dict[str, Any]):
    """A subclass of dict."""


class Rows(list[Any]):
    """A subclass of list."""


class Half(float):
    """A subclass of float."""


class Moment(datetime):
    """A subclass of datetime."""


class Nowhere(tzinfo):
    """A time zone that raises whatever it is asked."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        """Raise."""
        raise LookupError("nowhere")

    tzname = dst = utcoffset  # type: ignore[assignment]


def text_rows(field: str) -> list[Row]:
    """The rules of a text key: exactly a `str`, 1 to 128 bytes of UTF-8, no control character, no lone surrogate."""
    long = {
        "empty": "",
        "129 bytes": "a" * 129,
        "130 bytes in 65 characters": "\u00e9" * 65,
        "a million": "a" * 10**6,
    }
    bad = {
        "NUL": "a\0b",
        "line end": "a\nb",
        "tab": "\t",
        "escape": "\x1b[31m",
        "delete": "a\x7f",
        "C1": "a\x85",
        "lone surrogate": SURROGATE,
        "high surrogate": "\ud800",
        "low surrogate": "\udfff",
        "None": None,
        "int": 7,
        "bool": True,
        "bytes": b"m",
        "list": ["m"],
        "subclass": Shout("m"),
    }
    return [Row(rule, field, value, 128) for rule, value in long.items()] + [
        Row(rule, field, value) for rule, value in bad.items()
    ]


def int_rows(field: str, low: int, high: int) -> list[Row]:
    """The rules of a whole number within bounds, never a `bool`."""
    rows = [Row("below", field, low - 1, low), Row("above", field, high + 1, high), Row("huge", field, 10**5000, high)]
    other = {"bool": True, "float": float(low), "text": str(low), "None": None, "NaN": math.nan, "subclass": Sum(low)}
    return rows + [Row(rule, field, value) for rule, value in other.items()]


def deadline_rows() -> list[Row]:
    """A finite number below 2^53 in size, or an aware datetime; never a `bool`."""
    bound = 2**53
    out = {"2^53": 2.0**53, "-2^53": -(2**53), "NaN": math.nan, "inf": math.inf, "-inf": -math.inf, "huge": 10**5000}
    other = {
        "True": True,
        "False": False,
        "text": "4e9",
        "None": None,
        "list": [FAR],
        "naive": datetime(2100, 1, 1),  # noqa: DTZ001 - naive on purpose
        "broken zone": datetime(2100, 1, 1, tzinfo=Nowhere()),
        "subclass of datetime": Moment(2100, 1, 1, tzinfo=timezone.utc),  # noqa: UP017
        "subclass of int": Sum(4 * 10**9),
        "subclass of float": Half(FAR),
    }
    return [Row(rule, "deadline", value, bound) for rule, value in out.items()] + [
        Row(rule, "deadline", value) for rule, value in other.items()
    ]


def json_rows(field: str) -> Iterator[Row]:
    """What no payload and no result may hold, in a place of every kind."""
    leaves = {
        "NaN": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "no double": 10**400,
        "no negative double": -(10**400),
        "lone surrogate": SURROGATE,
        "tuple": (1,),
        "set": {1},
        "bytes": b"x",
        "complex": 1j,
        "object": object(),
        "datetime": datetime(2100, 1, 1, tzinfo=timezone.utc),  # noqa: UP017
        "int as key": {1: 2},
        "None as key": {None: 1},
        "subclass as key": {Shout("k"): 1},
        "surrogate as key": {SURROGATE: 1},
        "subclass of str": Shout("x"),
        "subclass of int": Sum(1),
        "subclass of float": Half(1.5),
        "subclass of dict": Box(a=1),
        "subclass of list": Rows([1]),
    }
    for rule, leaf in leaves.items():
        yield Row(rule, field, {"a": leaf})
        yield Row(f"{rule} far inside", field, {"a": [1, {"b": [[leaf]]}]})
    yield Row("17 deep", field, nested(17), 16)
    yield Row("2,000 deep", field, nested(2000), 16)
    yield Row("holds itself", field, knotted(), 16)
    yield Row("10,001 values in a list", field, {"a": [0] * 10_000}, 10_000)
    yield Row("10,001 values in a dict", field, {str(number): 0 for number in range(10_001)}, 10_000)
    yield Row("10,001 values in lists of lists", field, {"a": [[0]] * 5_000}, 10_000)


def payload_rows() -> list[Row]:
    """A JSON object of at most 64 KiB."""
    other: dict[str, Any] = {
        "None": None,
        "list": [],
        "text": "{}",
        "int": 1,
        "subclass": Box(a=1),
        "no str at the top": {1: 1},
    }
    rows = [Row(rule, "payload", value) for rule, value in other.items()]
    for rule, value in {
        "65,537 bytes": {"a": "x" * 65_529},
        "65,538 bytes of two each": {"a": "\u00e9" * 32_765},
        "65,537 bytes by escapes": {"a": "\n" * 32_764 + "x"},
        "a key of 64 KiB": {"k" * 65_536: 1},
        "10 MB": {"a": "x" * 10**7},
    }.items():
        rows.append(Row(rule, "payload", value, 65_536))
    return [*rows, *json_rows("payload")]


def result_rows(bytes_max: int = 1_048_576) -> list[Row]:
    """Any JSON value of at most 1 MiB, or what the queue was told."""
    top = {"NaN at the top": math.nan, "tuple at the top": (1,), "surrogate at the top": SURROGATE, "object": object()}
    rows = [Row(rule, "result", value) for rule, value in top.items()]
    rows += [Row("a byte too many", "result", "x" * (bytes_max - 1), bytes_max)]
    rows += [Row("a byte too many, of two each", "result", "\u00e9" * (bytes_max // 2), bytes_max)]
    return [*rows, *json_rows("result")]


ENVELOPES: Final[list[Row]] = [
    *text_rows("message_id"),
    *[
        Row(str(number), "kind", kind)
        for number, kind in enumerate(["result", "Task", "", None, b"task", Shout("task")])
    ],
    *deadline_rows(),
    *int_rows("max_attempts", 1, 10),
    *int_rows("hops", 0, 2**31 - 1),
    *int_rows("priority", 0, 9),
    *text_rows("queue"),
    *payload_rows(),
]
"""Refused as InvalidEnvelope, one changed field in an envelope that is else good."""

QUEUES: Final[list[Row]] = [
    Row("bare text", "queues", "default"),
    Row("none", "queues", (), 32),
    Row("33", "queues", ("default",) * 33, 32),
    *[Row(f"one is: {row.rule}", "queues", ("default", row.value), row.limit) for row in text_rows("queues")],
    *[Row(type(bad).__name__, "queues", bad) for bad in ({"default"}, None, b"default", iter(("default",)), {"a": 1})],
]

SENDERS: Final[list[tuple[str, Any, Any]]] = [
    ("no AuthContext", None, SENDER),
    ("a text", SENDER, SENDER),
    ("a dict", {"principal": SENDER}, SENDER),
    ("a lookalike", SimpleNamespace(principal=SENDER), SENDER),
    ("a subclass", type("Special", (AuthContext,), {})(SENDER), SENDER),
    ("the class", AuthContext, SENDER),
    ("not allowed", AuthContext("agent-z"), "agent-z"),
    ("another case", AuthContext("Agent-A"), "Agent-A"),
    ("a blank more", AuthContext("agent-a "), "agent-a "),
    ("a principal of another type", AuthContext(7), SENDER),  # type: ignore[arg-type]
    ("a principal of a subclass", AuthContext(Shout(SENDER)), SENDER),
    ("a principal that cannot be hashed", AuthContext([SENDER]), SENDER),  # type: ignore[arg-type]
    ("no principal", AuthContext(""), ""),
    ("not the sender", AuthContext(SENDER), "agent-b"),
    ("the sender is None", AuthContext(SENDER), None),
    ("the sender is bytes", AuthContext(SENDER), b"agent-a"),
    ("the sender is a subclass", AuthContext(SENDER), Shout(SENDER)),
]
"""Refused as Unauthorized: the rule, the authority, the sender."""

NOT_ENVELOPES: Final[list[Any]] = [
    *(None, {}, "{}", {"message_id": "m"}, Envelope),
    type("Special", (Envelope,), {})("m", SENDER, {}, FAR),
]


def good(message_id: Any = "m-good", **changes: Any) -> Envelope:
    """An envelope with nothing wrong but what a test changes."""
    fields = {"sender": SENDER, "payload": {"n": 1}, "deadline": FAR}
    return Envelope(**{"message_id": message_id, **fields, **changes})


def line(row: Row) -> bytes | None:
    """The envelope of a row as a line of JSON; None for a value that JSON has no way to write."""
    fields = {"message_id": "m-good", "payload": {"n": 1}, "deadline": FAR, row.field: row.value}
    try:
        text = json.dumps(fields)
        back = json.loads(text)[row.field]
    except (TypeError, ValueError, RecursionError):  # What cannot be written, what holds itself, what is too deep.
        return None
    is_same = _shape(back) == _shape(row.value)
    return text.encode() if is_same and "NaN" not in text and "Infinity" not in text else None


def _shape(value: Any) -> Any:
    """A value with the types of everything in it, so that `1` is not `True` and a list no tuple."""
    if isinstance(value, dict):
        return type(value), [(_shape(key), _shape(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [_shape(item) for item in value]
    return type(value), repr(value)
