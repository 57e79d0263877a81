"""What is accepted and what is refused: both sides of every limit in section 2 of the contract."""

from __future__ import annotations

import json
import math
import sys
import threading
import traceback
import tracemalloc
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum, StrEnum
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery import accepting
from recovery.canonical import canonical_json
from recovery.errors import InvalidEnvelope, Misconfigured

SECRET = "hunter2"

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


class Text(str):
    """A str of another type."""

    __slots__ = ()


class Whole(int):
    """An int of another type."""


class Real(float):
    """A float of another type."""


class Moment(datetime):
    """A datetime of another type."""


class Items(list[object]):
    """A list of another type."""


class Members(dict[str, object]):
    """A dict of another type."""


class Colour(StrEnum):
    """A str that is an enum's."""

    RED = "red"


class Level(IntEnum):
    """An int that is an enum's."""

    LOW = 1


def refusal(call: Callable[[], object]) -> InvalidEnvelope:
    """The refusal that `call` ends in."""
    with pytest.raises(InvalidEnvelope) as caught:
        call()
    return caught.value


def bytes_allocated(call: Callable[[], object]) -> int:
    """The most bytes that Python held at a time for `call`, which is refused: how much work it was, without a clock."""
    tracemalloc.start()
    try:
        refusal(call)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def kind(value: object) -> str:
    """The name of a case that is about the type of its value."""
    return str(value) if isinstance(value, bool) else type(value).__name__


def nested(depth: int, innermost: object) -> Any:
    """`innermost` at `depth` below a dict, with lists and dicts by turns."""
    value = innermost
    for level in reversed(range(depth)):
        value = [value] if level % 2 else {"k": value}
    return value


# Text keys


@pytest.mark.parametrize(
    "text",
    [
        "a",
        " ",
        " Case and blanks stay ",
        "x" * 128,
        "é" * 64,
        "😀" * 32,
        "e\u0301",
        "\u2028",
        "\u200b",
        "\ufeff",
        "\U0010ffff",
        "'; DROP TABLE tasks; --",
    ],
)
def test_a_text_key_is_taken_as_it_is(text: str) -> None:
    """1 to 128 bytes of UTF-8 without control characters: returned untouched, and known to the look-up."""
    assert text is accepting.checked_text(text, "message_id")
    assert accepting.is_text_key(text) is True


@pytest.mark.parametrize("text", ["", "x" * 129, "é" * 64 + "x", "é" * 65, "😀" * 33])
def test_a_text_key_of_the_wrong_size_is_refused(text: str) -> None:
    """The limit is in bytes of UTF-8, not in characters, and nothing is not a key."""
    error = refusal(lambda: accepting.checked_text(text, "message_id"))
    assert ("message_id must be 1 to 128 bytes of UTF-8.", "message_id", 128) == (str(error), error.field, error.limit)
    assert accepting.is_text_key(text) is False


@pytest.mark.parametrize(
    "character", ["\0", "\t", "\n", "\x1f", "\x7f", "\x80", "\x85", "\x9f", chr(0xD800), chr(0xDFFF)]
)
@pytest.mark.parametrize("around", ["{}", "a{}", "{}a", "a{}a"])
def test_a_control_character_or_a_surrogate_is_refused_wherever_it_stands(character: str, around: str) -> None:
    """Neither at the start, in the middle nor at the end, a trailing newline included."""
    text = around.format(character)
    error = refusal(lambda: accepting.checked_text(text, "sender"))
    assert "sender must hold no control character and no lone surrogate." == str(error)
    assert accepting.is_text_key(text) is False


def test_exactly_unicode_cc_and_cs_are_kept_out_of_keys() -> None:
    """The rule is that of the Unicode categories, for every code point that there is."""
    characters = [chr(point) for point in range(sys.maxunicode + 1)]
    forbidden = [character for character in characters if unicodedata.category(character) in ("Cc", "Cs")]
    assert forbidden == [character for character in characters if not accepting.is_text_key(character)]


@pytest.mark.parametrize("value", [None, 1, True, b"a", ["a"], Text("a"), Colour.RED, object()], ids=kind)
def test_a_text_key_is_exactly_a_str(value: object) -> None:
    """A subclass is refused too: it may compare and hash as it likes."""
    error = refusal(lambda: accepting.checked_text(value, "owner"))
    assert ("owner must be a str.", "owner", None) == (str(error), error.field, error.limit)
    assert accepting.is_text_key(value) is False


def test_another_limit_may_be_given() -> None:
    """Both sides of a limit of three bytes."""
    assert "abc" == accepting.checked_text("abc", "name", 3)
    assert accepting.is_text_key("abc", 3) is True
    assert 3 == refusal(lambda: accepting.checked_text("abcd", "name", 3)).limit
    assert accepting.is_text_key("abcd", 3) is False


def test_a_huge_text_is_refused_by_its_length_alone() -> None:
    """100 MB are neither encoded nor copied."""
    huge = "é" * 50_000_000
    assert bytes_allocated(lambda: accepting.checked_text(huge, "message_id")) < 20_000


# Deadlines


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("0.0", 0),
        ("0.0", -0.0),
        ("2000.0", 2000),
        ("2000.5", 2000.5),
        ("-1.5", -1.5),
        ("5e-324", 5e-324),
        ("9007199254740991.0", 2**53 - 1),
        ("-9007199254740991.0", -(2**53) + 1),
        ("9007199254740991.0", math.nextafter(2.0**53, 0)),
        ("0.0", datetime(1970, 1, 1, tzinfo=UTC)),
        ("1767225600.25", datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
        ("1767225600.0", datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
        ("-62135643600.0", datetime.min.replace(tzinfo=timezone(timedelta(hours=13)))),
    ],
)
def test_a_deadline_becomes_a_double_of_seconds(expected: str, value: object) -> None:
    """The answer is a float, and never -0.0: compared as text, because 0.0 == -0.0 == 0."""
    assert expected == repr(accepting.checked_deadline(value))


@pytest.mark.parametrize(
    "value",
    [2**53, -(2**53), 2.0**53, -(2.0**53), math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e308],
)
def test_a_deadline_out_of_bounds_is_refused(value: float) -> None:
    """At 2^53 and beyond, and where it is no finite number; an int too large for a double is no OverflowError."""
    error = refusal(lambda: accepting.checked_deadline(value))
    assert ("deadline", 2**53) == (error.field, error.limit)
    assert "deadline must be finite and smaller than 2^53 in size." == str(error)


@pytest.mark.parametrize(
    "value",
    [None, True, False, "2000", b"2000", Whole(1), Real(1.0), Level.LOW, Decimal(1), 1j, timedelta(1), [1], object()],
    ids=kind,
)
def test_a_deadline_of_another_type_is_refused(value: object) -> None:
    """Only int, float and datetime, exactly: a bool is no number here, and a text is not read."""
    error = refusal(lambda: accepting.checked_deadline(value))
    assert ("deadline", None) == (error.field, error.limit)


def test_a_deadline_of_a_datetime_subclass_is_refused() -> None:
    """A subclass may subtract as it likes."""
    assert "deadline" == refusal(lambda: accepting.checked_deadline(Moment(2026, 1, 1, tzinfo=UTC))).field


class Zone(tzinfo):
    """What a time zone must have, and no test needs."""

    def dst(self, _: datetime | None) -> timedelta | None:
        """Nothing is known."""
        return None

    def tzname(self, _: datetime | None) -> str | None:
        """It has no name."""
        return None


class NoOffset(Zone):
    """A time zone that does not say how far it is from UTC."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        """None makes a datetime naive in spite of its tzinfo."""
        return None


class BrokenOffset(Zone):
    """A time zone whose code fails."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        """Raise what no caller expects."""
        raise ZeroDivisionError


@pytest.mark.parametrize("zone", [None, NoOffset(), BrokenOffset()], ids=kind)
def test_a_naive_datetime_is_refused(zone: tzinfo | None) -> None:
    """Without an offset a datetime is no moment; it is never taken for local time."""
    error = refusal(lambda: accepting.checked_deadline(datetime(2026, 1, 1, tzinfo=zone)))
    assert "deadline must be aware, if it is a datetime (it has no usable offset from UTC)." == str(error)


@settings(deadline=None)
@given(st.datetimes(timezones=st.timezones()))
def test_an_aware_datetime_is_the_moment_that_it_names(moment: datetime) -> None:
    """The same number as `datetime.timestamp`, in every zone and year."""
    assert moment.timestamp() == accepting.checked_deadline(moment)


# Ints and configured times


@pytest.mark.parametrize("value", [0, 1, 2_147_483_646, 2_147_483_647])
def test_an_int_within_its_bounds_is_taken(value: int) -> None:
    """Both bounds are allowed."""
    assert value == accepting.checked_int(value, "hops", 0, 2_147_483_647)


@pytest.mark.parametrize(("limit", "value"), [(1, 0), (1, -(10**400)), (10, 11), (10, 10**400)])
def test_an_int_out_of_bounds_is_refused(limit: int, value: int) -> None:
    """The error tells the bound that was broken."""
    error = refusal(lambda: accepting.checked_int(value, "max_attempts", 1, 10))
    assert ("max_attempts", limit) == (error.field, error.limit)
    assert "max_attempts must be from 1 to 10." == str(error)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, Whole(1), Level.LOW, Decimal(1)], ids=kind)
def test_an_int_is_exactly_an_int(value: object) -> None:
    """A bool is no int here, and 1.0 is not 1."""
    error = refusal(lambda: accepting.checked_int(value, "hops", 0, 10))
    assert ("hops must be an int.", "hops", None) == (str(error), error.field, error.limit)


def test_an_int_of_the_configuration_is_refused_with_the_callers_error() -> None:
    """A wrong setting is `Misconfigured`, whatever is wrong with it."""
    with pytest.raises(Misconfigured, match=r"^max_hops must be from 0 to 10\.$"):
        accepting.checked_int(11, "max_hops", 0, 10, Misconfigured)
    with pytest.raises(Misconfigured, match=r"^max_hops must be an int\.$"):
        accepting.checked_int(1.0, "max_hops", 0, 10, Misconfigured)


@pytest.mark.parametrize(("expected", "value"), [("0.5", 0.5), ("1.0", 1), ("60.0", 60), ("60.0", 60.0)])
def test_a_configured_time_becomes_a_double(expected: str, value: float) -> None:
    """Both bounds are allowed, and the answer is a float of seconds."""
    assert expected == repr(accepting.checked_seconds(value, "lease_seconds", 0.5, 60))


def test_a_configured_time_is_never_minus_zero() -> None:
    """-0.0 equals 0.0 and becomes it."""
    assert "0.0" == repr(accepting.checked_seconds(-0.0, "pause_seconds", 0, 60))


@pytest.mark.parametrize(
    ("limit", "value"),
    [(0.5, 0.49), (0.5, -(10**400)), (60.0, 60.01), (60.0, 61), (60.0, 10**400), (60.0, math.inf), (0.5, -math.inf)],
)
def test_a_configured_time_out_of_bounds_is_refused(limit: float, value: float) -> None:
    """The error tells the bound that was broken; a huge int is no OverflowError."""
    error = refusal(lambda: accepting.checked_seconds(value, "lease_seconds", 0.5, 60.0))
    assert ("lease_seconds", limit) == (error.field, error.limit)
    assert "lease_seconds must be finite and from 0.5 to 60.0 seconds." == str(error)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_a_configured_time_is_finite_even_without_bounds(value: float) -> None:
    """Infinite bounds do not let an infinity through, nor an int that would become one."""
    assert "wait" == refusal(lambda: accepting.checked_seconds(value, "wait", -math.inf, math.inf)).field


@pytest.mark.parametrize(
    "value", [True, False, "1", None, Whole(1), Real(1.0), Decimal(1), timedelta(seconds=1)], ids=kind
)
def test_a_configured_time_is_exactly_a_number(value: object) -> None:
    """A bool is no number of seconds, and neither is a text or a timedelta."""
    error = refusal(lambda: accepting.checked_seconds(value, "lease_seconds", 0, 60))
    assert ("lease_seconds must be an int or a float.", None) == (str(error), error.limit)


@pytest.mark.parametrize("value", [True, math.nan, 61])
def test_a_configured_time_is_refused_with_the_callers_error(value: float) -> None:
    """The caller names the class; it gets the sentence."""
    with pytest.raises(Misconfigured, match=r"^lease_seconds must be "):
        accepting.checked_seconds(value, "lease_seconds", 0, 60, Misconfigured)


# Payloads and results


@settings(deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_a_payload_reads_back_as_the_value(value: dict[str, object]) -> None:
    """The encoding is the canonical JSON of the value, and reading it gives the value again, types included."""
    text = accepting.encoded_payload(value)
    assert canonical_json(value) == text
    assert value == json.loads(text)
    assert text == accepting.encoded_payload(json.loads(text))


@settings(deadline=None)
@given(VALUES)
def test_a_result_fits_exactly_at_its_size_in_bytes(value: object) -> None:
    """The early lower bound refuses nothing that fits, and the last check lets nothing through that does not."""
    size_bytes = len(canonical_json(value).encode())
    assert canonical_json(value) == accepting.encoded_result(value, size_bytes)
    assert size_bytes - 1 == refusal(lambda: accepting.encoded_result(value, size_bytes - 1)).limit


@settings(deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_checking_changes_nothing_in_the_value(value: dict[str, object]) -> None:
    """The caller's own lists and dicts stay as they were: the walk works on copies."""
    before = canonical_json(value)
    accepting.encoded_payload(value)
    assert before == canonical_json(value)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("{}", {}),
        ('{"a":1,"b":1.0}', {"b": 1.0, "a": 1}),
        ('{"a":-0.0}', {"a": -0.0}),
        ('{"":"\\u0000"}', {"": "\0"}),
        ('{"\\u0000":""}', {"\0": ""}),
        ('{"t":true,"u":false,"v":null}', {"v": None, "u": False, "t": True}),
    ],
)
def test_golden_payloads(expected: str, value: object) -> None:
    """1 and 1.0 differ, a NUL is JSON and is kept, keys are sorted and may be empty."""
    assert expected == accepting.encoded_payload(value)


@pytest.mark.parametrize(
    ("expected", "value"),
    [("null", None), ("false", False), ("0", 0), ("1.5", 1.5), ('"é"', "é"), ("[]", []), ('{"a":[{}]}', {"a": [{}]})],
)
def test_any_json_value_is_a_result(expected: str, value: object) -> None:
    """At the top of a result stands what JSON has, and None is one of these."""
    assert expected == accepting.encoded_result(value)


@pytest.mark.parametrize(
    "value", [None, 1, True, "{}", b"{}", [("a", 1)], (), Members(), OrderedDict(), object()], ids=kind
)
def test_a_payload_is_exactly_a_dict(value: object) -> None:
    """Nothing else is a JSON object, a dict of another type included."""
    error = refusal(lambda: accepting.encoded_payload(value))
    assert ("payload must be a dict (a JSON object).", "payload") == (str(error), error.field)


FOREIGN = [
    Text("a"),
    Whole(1),
    Real(1.0),
    Items(),
    Members(),
    OrderedDict(),
    Colour.RED,
    Level.LOW,
    (1, 2),
    set(),
    frozenset(),
    b"a",
    bytearray(),
    1j,
    Decimal(1),
    datetime(2026, 1, 1, tzinfo=UTC),
    object(),
    int,
    iter([]),
    ...,
]


@pytest.mark.parametrize("value", FOREIGN, ids=kind)
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_what_is_not_exactly_json_is_refused_at_every_depth(value: object, depth: int) -> None:
    """Subclasses and tuples too; the error tells the field and the depth."""
    error = refusal(lambda: accepting.encoded_result(nested(depth, value)))
    assert "result" == error.field
    assert f"(at depth {depth})" in str(error)


@pytest.mark.parametrize("key", [1, 1.0, True, None, b"a", ("a",), Text("a"), Colour.RED], ids=repr)
@pytest.mark.parametrize("depth", [0, 2])
def test_a_key_is_exactly_a_str(key: object, depth: int) -> None:
    """JSON has no other keys, and the encoder would quietly turn some of these into text."""
    error = refusal(lambda: accepting.encoded_payload(nested(depth, {key: 1})))
    assert f"payload must have no key (at depth {depth}) that is not exactly a str." == str(error)


@pytest.mark.parametrize(
    "number",
    [0, -1, 2**53 + 1, 2**1024 - 2**970 - 1, -(2**1024) + 2**970 + 1, int(sys.float_info.max), sys.float_info.max],
)
def test_a_number_that_is_finite_as_a_double_is_kept_in_full(number: float) -> None:
    """Up to the largest int that does not round to infinity; it is written with all its digits."""
    assert f'{{"n":{number!r}}}' == accepting.encoded_payload({"n": number})
    assert math.isfinite(float(number))


@pytest.mark.parametrize(
    "number",
    [math.nan, math.inf, -math.inf, 2**1024 - 2**970, -(2**1024) + 2**970, 2**1024, 1 << 20_000],
    ids=["nan", "inf", "-inf", "first", "-first", "2^1024", "2^20000"],
)
def test_a_number_that_is_not_finite_as_a_double_is_refused(number: float) -> None:
    """From the first int that rounds to infinity; one with more digits than Python prints is no other error."""
    error = refusal(lambda: accepting.encoded_payload({"n": [number]}))
    assert "payload must hold no number (at depth 2) that is not finite as a double." == str(error)


@pytest.mark.parametrize("text", ["a\ud800b", chr(0xDFFF), "\ud83d\ude00"])
def test_a_lone_surrogate_is_refused_in_keys_and_in_strings(text: str) -> None:
    """UTF-8 has none, and two that would make a pair in UTF-16 are two lone ones here."""
    expected = "must hold no lone surrogate, in no key and no string."
    assert f"payload {expected}" == str(refusal(lambda: accepting.encoded_payload({"a": [{"b": text}]})))
    assert f"payload {expected}" == str(refusal(lambda: accepting.encoded_payload({"a": [{text: 1}]})))
    assert f"result {expected}" == str(refusal(lambda: accepting.encoded_result(text)))


@pytest.mark.parametrize("innermost", [1, "a", None, [], {}], ids=repr)
def test_sixteen_deep_is_the_limit_for_every_value(innermost: object) -> None:
    """The payload is depth 0; a value at depth 16 is taken, one at depth 17 is not, be it a container or not."""
    assert canonical_json(nested(16, innermost)) == accepting.encoded_payload(nested(16, innermost))
    error = refusal(lambda: accepting.encoded_payload(nested(17, innermost)))
    assert ("payload must be at most 16 deep, and must not contain itself.", 16) == (str(error), error.limit)


def test_a_result_has_the_same_depth() -> None:
    """The value at the top is depth 0, whatever it is."""
    assert canonical_json(nested(16, 1)) == accepting.encoded_result(nested(16, 1))
    assert 16 == refusal(lambda: accepting.encoded_result(nested(17, 1))).limit


def test_a_value_far_too_deep_is_refused_without_recursion() -> None:
    """100,000 levels end at the seventeenth: no RecursionError, and no memory."""
    deep = nested(100_000, 1)
    assert bytes_allocated(lambda: accepting.encoded_payload(deep)) < 50_000


def test_values_are_counted_without_the_payload_and_without_keys() -> None:
    """10,000 members of a payload are taken, one more is not."""
    members = {f"{number}": 0 for number in range(10_000)}
    wide = accepting.encoded_result(members)
    assert members == json.loads(wide)
    error = refusal(lambda: accepting.encoded_result({**members, "more": 0}))
    assert ("result must hold at most 10000 values.", 10_000) == (str(error), error.limit)


def test_list_items_and_containers_are_values() -> None:
    """The list itself is one, each of its items is one."""
    assert canonical_json({"a": [0] * 9_999}) == accepting.encoded_payload({"a": [0] * 9_999})
    assert 10_000 == refusal(lambda: accepting.encoded_payload({"a": [0] * 10_000})).limit
    assert canonical_json([[]] * 10_000) == accepting.encoded_result([[]] * 10_000)
    assert 10_000 == refusal(lambda: accepting.encoded_result([[]] * 10_001)).limit


def test_what_stands_in_two_places_counts_twice() -> None:
    """Four references to one list of 2,499 items are 10,000 values, and a few nested doublings are no way around."""
    shared = [0] * 2_499
    assert canonical_json([shared] * 4) == accepting.encoded_result([shared] * 4)
    assert 10_000 == refusal(lambda: accepting.encoded_result([shared, shared, shared, [*shared, 0]])).limit
    doubled: list[object] = []
    for _ in range(15):
        doubled = [doubled, doubled]
    assert 10_000 == refusal(lambda: accepting.encoded_result(doubled)).limit


@pytest.mark.parametrize(
    ("fill", "fill_bytes"), [("x", 1), ("é", 2), ("✓", 3), ("😀", 4), ("\n", 2), ("\0", 6), ('"', 2)]
)
def test_a_payload_has_65536_bytes_of_utf8(fill: str, fill_bytes: int) -> None:
    """Counted in the encoding, where an escape and a character outside ASCII are longer than one byte."""
    room_bytes = 65_536 - len('{"k":""}')
    fitting = fill * (room_bytes // fill_bytes) + "x" * (room_bytes % fill_bytes)
    assert 65_536 == len(accepting.encoded_payload({"k": fitting}).encode())
    error = refusal(lambda: accepting.encoded_payload({"k": fitting + "x"}))
    assert ("payload must be at most 65536 bytes of canonical JSON.", 65_536) == (str(error), error.limit)


def test_keys_take_part_in_the_size() -> None:
    """A payload may be too large by its keys alone."""
    assert 65_536 == len(accepting.encoded_payload({"k" * 65_530: 1}).encode())
    assert 65_536 == refusal(lambda: accepting.encoded_payload({"k" * 65_531: 1})).limit


def test_a_result_has_one_mebibyte_unless_told_otherwise() -> None:
    """Both sides of the limit, as it is by default."""
    assert 1_048_576 == len(accepting.encoded_result("x" * 1_048_574))
    error = refusal(lambda: accepting.encoded_result("x" * 1_048_575))
    assert ("result must be at most 1048576 bytes of canonical JSON.", 1_048_576) == (str(error), error.limit)


def cyclic_list() -> list[object]:
    """A list that is its own item."""
    items: list[object] = []
    items.append(items)
    return items


def cyclic_pair() -> list[object]:
    """A dict and a list that hold each other, twice at each step."""
    items: list[object] = []
    items += [{"a": items}, {"b": items}]
    return items


def wide_cycle() -> list[object]:
    """A list that holds itself ten thousand times."""
    items: list[object] = []
    items += [items] * 10_000
    return items


@pytest.mark.parametrize("make", [cyclic_list, cyclic_pair, wide_cycle])
def test_a_value_that_contains_itself_is_refused(make: Callable[[], object]) -> None:
    """It runs into the depth or the count, never into a RecursionError, and costs little."""
    value = make()
    refusal(lambda: accepting.encoded_payload({"a": value}))
    refusal(lambda: accepting.encoded_result(value))
    assert bytes_allocated(lambda: accepting.encoded_result(value)) < 1_000_000


def test_a_payload_that_contains_itself_is_refused() -> None:
    """Also when the payload is the one that comes back."""
    payload: dict[str, object] = {"a": 1}
    payload["b"] = payload
    assert 16 == refusal(lambda: accepting.encoded_payload(payload)).limit


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: {"k": "x" * 100_000_000}, id="string"),
        pytest.param(lambda: {"x" * 100_000_000: 1}, id="key"),
        pytest.param(lambda: {"k": [None] * 10_000_000}, id="list"),
        pytest.param(lambda: {"k": {f"{number}": 0 for number in range(200_000)}}, id="dict"),
        pytest.param(lambda: {f"{number}": 0 for number in range(200_000)}, id="payload"),
        pytest.param(lambda: {"k": ["x" * 65_000] * 9_000}, id="one string, often"),
        pytest.param(lambda: {"k": [["x" * 60] * 90] * 100}, id="one list, often"),
        pytest.param(lambda: {"k": 1 << 800_000_000}, id="int"),
    ],
)
def test_an_oversized_payload_is_refused_without_being_copied_or_encoded(make: Callable[[], object]) -> None:
    """100 MB cost no more memory than the largest payload that is allowed: 10,001 references and their tuples."""
    value = make()
    assert bytes_allocated(lambda: accepting.encoded_payload(value)) < 1_500_000


def test_an_oversized_result_is_refused_without_being_copied_or_encoded() -> None:
    """The same at the top of a result, which may be a string or a list."""
    text, items = "x" * 100_000_000, [None] * 10_000_000
    assert bytes_allocated(lambda: accepting.encoded_result(text)) < 20_000
    assert bytes_allocated(lambda: accepting.encoded_result(items)) < 200_000


@pytest.mark.parametrize(
    "value",
    [
        {SECRET: {1}},
        {"a": [SECRET, b"hunter2"]},
        {"a": Text(SECRET)},
        {Text(SECRET): 1},
        {SECRET: math.nan},
        {SECRET: SECRET + "\udc80"},
        {SECRET + "\udc80": 1},
        {"a": SECRET * 10_000},
        {SECRET: nested(17, SECRET)},
        {SECRET: [SECRET] * 10_001},
        SECRET,
    ],
)
def test_no_refusal_repeats_a_value_or_a_key(value: object) -> None:
    """Values and keys may be secrets: neither the sentence nor its causes and contexts hold them."""
    error = refusal(lambda: accepting.encoded_payload(value))
    assert SECRET not in "".join(traceback.format_exception(error))
    assert SECRET not in repr(error) + repr(vars(error))
    assert error.__context__ is None


@pytest.mark.parametrize("value", [SECRET * 100, SECRET + "\0", SECRET + "\udc80", Text(SECRET)])
def test_no_refusal_of_a_text_repeats_it(value: str) -> None:
    """The same for message ids and names, which a caller may have taken from a wrong field."""
    error = refusal(lambda: accepting.checked_text(value, "message_id"))
    assert SECRET not in "".join(traceback.format_exception(error)) + repr(vars(error))
    assert error.__context__ is None


def test_what_was_checked_is_what_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that is changed at the last moment, by another thread say, is encoded as it was when it was checked."""
    inner: list[object] = [1, {"deep": "before"}]
    payload: dict[str, object] = {"a": inner}

    def encode_late(value: object) -> str:
        inner[1] = {"deep": math.nan}
        inner.extend([object()] * 3)
        payload["b"] = "after"
        return canonical_json(value)

    monkeypatch.setattr(accepting, "canonical_json", encode_late)
    assert '{"a":[1,{"deep":"before"}]}' == accepting.encoded_payload(payload)


def test_a_dict_that_changes_while_it_is_copied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's RuntimeError becomes the refusal of the payload, with the error kept as its cause."""
    payload: dict[str, object] = {"a": [1], "b": 2}

    def disturbed(items: Iterable[object], stop: int) -> Iterator[object]:
        for item in islice(items, stop):
            payload["c"] = 3
            yield item

    monkeypatch.setattr(accepting, "islice", disturbed)
    error = refusal(lambda: accepting.encoded_payload(payload))
    assert "payload must not be changed while it is handed in." == str(error)
    assert isinstance(error.__cause__, RuntimeError)


def test_a_payload_that_another_thread_changes_is_whole_or_refused() -> None:
    """With a real thread at work: each answer is a payload that keeps every rule, or a refusal, and nothing else."""
    payload: dict[str, Any] = {"a": [1, 2, 3]}
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            payload["b"] = {"c": [math.inf]}
            payload["a"].append("x")
            del payload["b"], payload["a"][3:]

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(2_000):
            try:
                text = accepting.encoded_payload(payload)
            except InvalidEnvelope:
                continue
            assert text in ('{"a":[1,2,3]}', '{"a":[1,2,3,"x"]}')
    finally:
        stop.set()
        thread.join()


# Reasons and error texts


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("", ""),
        ("plain é✓😀\n\t", "plain é✓😀\n\t"),
        (r"a\x00b", "a\0b"),
        (r"a\udc80b", "a\udc80b"),
        (r"\ud83d\ude00", "\ud83d\ude00"),
        (r"a\x00", r"a\x00"),
        ("None", None),
        ("7", 7),
        ("b'a'", b"a"),
        ("boom", ValueError("boom")),
        ("sub", Text("sub")),
        ("red", Colour.RED),
        (r"a\x00", ValueError("a\0")),
    ],
)
def test_a_reason_is_a_text_that_can_be_stored(expected: str, value: object) -> None:
    """What a backend cannot store is made visible; everything else stays, an escape that the text already had too."""
    assert expected == accepting.safe_text(value)
    assert str is type(accepting.safe_text(value))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("x" * 2_048, "x" * 2_048),
        ("x" * 2_048, "x" * 2_049),
        ("é" * 1_024, "é" * 1_025),
        ("x" + "é" * 1_023, "x" + "é" * 1_024),
        ("x" + "😀" * 511, "x" + "😀" * 512),
        ("x" * 2_044 + r"\x00", "x" * 2_044 + "\0"),
        ("x" * 2_045, "x" * 2_045 + "\0"),
        ("x" * 2_042 + r"\udc80", "x" * 2_042 + "\udc80"),
        ("x" * 2_043, "x" * 2_043 + "\udc80"),
        (r"\x00" * 512, "\0" * 5_000),
        (r"\ud800" * 341, "\ud800" * 5_000),
    ],
)
def test_a_reason_is_cut_between_characters_and_between_escapes(expected: str, text: str) -> None:
    """At most 2,048 bytes, and never half of a character or of an escape of our own."""
    assert expected == accepting.safe_text(text)


def test_exactly_nul_and_the_surrogates_are_escaped() -> None:
    """Every other code point is stored as it is, control characters too."""
    escaped = [point for point in range(sys.maxunicode + 1) if chr(point) != accepting.safe_text(chr(point))]
    assert [0, *range(0xD800, 0xE000)] == escaped


def test_what_follows_the_cut_does_not_come_back() -> None:
    """After the first piece that does not fit nothing is taken, even if it would fit."""
    assert "xx" == accepting.safe_text("xx\0y", 5)


@settings(deadline=None)
@given(st.text(st.characters(), max_size=3_000), st.integers(0, 2_048))
def test_every_text_becomes_storable_and_short(text: str, bytes_max: int) -> None:
    """No NUL, no surrogate, within the bytes; and what is safe already stays as it is."""
    safe = accepting.safe_text(text, bytes_max)
    assert bytes_max >= len(safe.encode())
    assert "\0" not in safe
    assert safe == accepting.safe_text(safe, bytes_max)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=500))
def test_a_text_that_is_storable_and_short_is_not_touched(text: str) -> None:
    """Up to 2,048 bytes (500 characters of up to four) every character stays."""
    assert text == accepting.safe_text(text)


class Unprintable:
    """Its text cannot be had: making it raises what the test puts in."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error


class Odd(str):
    """A str that breaks every method that might be used on it."""

    __slots__ = ()

    def broken(self, *_: object, **__: object) -> Any:
        """Fail, whatever was asked."""
        raise ZeroDivisionError

    __str__ = __repr__ = __getitem__ = __len__ = __iter__ = __format__ = __eq__ = __hash__ = broken
    encode = translate = replace = isascii = broken


class AnswersOdd:
    """Its text is a str of another type."""

    def __str__(self) -> str:
        return Odd("a\0b")


class AnswersNumber:
    """Its text is none."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - what Python itself refuses


class Pretender:
    """Says that it is a str, and is not."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str


class Liar(type):
    """A metaclass whose classes have no usable name."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        """Fail when the name is asked for."""
        raise ZeroDivisionError


class Nameless(metaclass=Liar):
    """Has neither a text nor, by the usual way, a name."""

    def __str__(self) -> str:
        raise ZeroDivisionError


# Made inside the test: pytest itself would print them to name the cases.
AWKWARD: dict[str, tuple[str, Callable[[], object]]] = {
    "error": ("<unprintable Unprintable>", lambda: Unprintable(ZeroDivisionError())),
    "recursion": ("<unprintable Unprintable>", lambda: Unprintable(RecursionError())),
    "memory": ("<unprintable Unprintable>", lambda: Unprintable(MemoryError())),
    "generator": ("<unprintable Unprintable>", lambda: Unprintable(GeneratorExit())),
    "base": ("<unprintable Unprintable>", lambda: Unprintable(BaseException())),
    "inside an exception": ("<unprintable ValueError>", lambda: ValueError(Unprintable(ZeroDivisionError()))),
    "not a text": ("<unprintable AnswersNumber>", AnswersNumber),
    "no name": ("<unprintable Nameless>", Nameless),
    "too many digits": ("<unprintable int>", lambda: 1 << 20_000),
    "answers a subclass": (r"a\x00b", AnswersOdd),
    "is a subclass": (r"a\x00b", lambda: Odd("a\0b")),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_no_object_makes_a_reason_fail(case: str) -> None:
    """A failure path must not fail: an object without a text is named by its class."""
    expected, make = AWKWARD[case]
    safe = accepting.safe_text(make())
    assert (str, expected) == (type(safe), safe)


def test_an_object_that_pretends_to_be_a_str_is_printed() -> None:
    """The real type counts, not what `__class__` says."""
    assert "Pretender object" in accepting.safe_text(Pretender())


def test_the_name_of_a_class_is_made_safe_and_short_too() -> None:
    """A class may have any name, of any length."""
    kind = type("N" * 5_000, (Unprintable,), {})
    assert "<unprintable " + "N" * 2_035 == accepting.safe_text(kind(ZeroDivisionError()))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=kind)
def test_an_interrupt_is_not_swallowed(error: BaseException) -> None:
    """It may come from a signal at that very moment, and a shutdown must not get lost."""
    with pytest.raises(type(error)):
        accepting.safe_text(Unprintable(error))


@pytest.mark.parametrize("make", [lambda text: text, Text, ValueError], ids=["str", "subclass", "exception"])
def test_a_huge_reason_is_cut_before_it_is_worked_on(make: Callable[[str], object]) -> None:
    """Of 100 MB only the first 2,048 characters are looked at."""
    value = make("\0é" * 25_000_000)
    tracemalloc.start()
    try:
        assert r"\x00é" * 341 == accepting.safe_text(value)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@settings(deadline=None)
@given(VALUES)
def test_every_json_value_has_a_reason_text(value: object) -> None:
    """Whatever it is, it is printed, storable and short."""
    assert 2_048 >= len(accepting.safe_text(value).encode())
