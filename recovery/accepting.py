"""What is accepted: every rule of section 2 of the contract about one value, checked before anything is written.

A refusal names the field and the limit, and never repeats the value or a key, which may be a secret. Types are exact:
a subclass can answer differently each time it is asked, so what was checked would not be what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from math import isfinite
from typing import Final, TypeGuard, TypeVar, cast

from recovery.canonical import canonical_flat, canonical_json
from recovery.errors import InvalidEnvelope, RecoveryError
from recovery.messages import DEFAULT_QUEUES

KEY_BYTES_MAX: Final = 128
QUEUES_MAX: Final = 32
REASON_BYTES_MAX: Final = 2_048
PAYLOAD_BYTES_MAX: Final = 65_536
RESULT_BYTES_MAX: Final = 1_048_576
DEPTH_MAX: Final = 16
VALUES_MAX: Final = 10_000
FLAT_VALUES_MAX: Final = 64
DEADLINE_BOUND: Final = 2**53
"""Deadlines are seconds since the epoch, smaller than this in size."""

_DOUBLE_BOUND: Final = 2**1024 - 2**970
"""The smallest int that rounds to infinity as a double. Comparing with it is exact, also for an int of any size, and is
False for NaN and the infinities."""

_Item = TypeVar("_Item")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_NOT_IN_KEYS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Unicode's category Cc, and the surrogates, which UTF-8 does not have."""

_NOT_STORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
"""What TEXT refuses on PostgreSQL, or the driver on either backend."""


# Text, numbers and times


def checked_text(value: object, field: str, bytes_max: int = KEY_BYTES_MAX) -> str:
    """`value` if it is a text key: exactly a `str`, 1 to `bytes_max` bytes of UTF-8, no control character.

    Nothing is normalised: identity is by bytes. Raises `InvalidEnvelope` that names `field`.
    """
    if type(value) is not str:
        raise _refusal(field, "must be a str")
    if rule := _broken_text_rule(value, bytes_max):
        raise _refusal(field, rule, bytes_max)
    return value


def is_text_key(value: object, bytes_max: int = KEY_BYTES_MAX) -> TypeGuard[str]:
    """Whether `checked_text` would take `value`. A look-up by what it would not take finds nothing."""
    return type(value) is str and not _broken_text_rule(value, bytes_max)


def checked_queues(value: object) -> tuple[str, ...]:
    """The names of the queues that a claim asks: a tuple or list of 1 to 32, each once, never one bare `str`."""
    if value is DEFAULT_QUEUES:
        return DEFAULT_QUEUES
    if type(value) is not tuple and type(value) is not list:
        raise _refusal("queues", "must be a tuple or list of names, never one bare text")
    if not 1 <= len(value) <= QUEUES_MAX:
        raise _refusal("queues", f"must be 1 to {QUEUES_MAX} names", QUEUES_MAX)
    return tuple(dict.fromkeys(checked_text(queue, "queues") for queue in value))


def checked_deadline(value: object) -> float:
    """A deadline in seconds since the epoch, from an `int`, a `float` or an aware `datetime`.

    Raises `InvalidEnvelope` for anything else: a `bool`, a naive `datetime`, NaN, an infinity, 2^53 or more in size.
    """
    if type(value) is datetime:
        return _seconds_since_epoch(value)
    if type(value) is not int and type(value) is not float:
        raise _refusal("deadline", "must be an int or a float (seconds since the epoch), or an aware datetime")
    # Compared before it is converted: an int of any size can be compared at once, and NaN compares as False.
    if not -DEADLINE_BOUND < value < DEADLINE_BOUND:
        raise _refusal("deadline", "must be finite and smaller than 2^53 in size", DEADLINE_BOUND)
    return value + 0.0  # makes an int a double, and -0.0 the 0.0 that it equals


def checked_int(value: object, field: str, low: int, high: int, error: type[RecoveryError] = InvalidEnvelope) -> int:
    """`value` if it is exactly an `int` from `low` to `high`, both allowed. Raises `error` that names `field`."""
    if type(value) is not int:
        raise _refusal(field, "must be an int", error=error)
    if not low <= value <= high:
        raise _refusal(field, f"must be from {low} to {high}", high if value > high else low, error)
    return value


def checked_seconds(
    value: object, field: str, low: float, high: float, error: type[RecoveryError] = InvalidEnvelope
) -> float:
    """A configured time in seconds: exactly an `int` or a `float`, from `low` to `high`, both allowed, and finite.

    Raises `error` that names `field`; it is called with a sentence alone unless it is an `InvalidEnvelope`.
    """
    if type(value) is not int and type(value) is not float:
        raise _refusal(field, "must be an int or a float", error=error)
    # The second test matters where the caller's own bound is an infinity.
    if not (low <= value <= high and _is_finite(value)):
        raise _refusal(field, f"must be finite and from {low} to {high} seconds", high if value > low else low, error)
    return value + 0.0


def _broken_text_rule(text: str, bytes_max: int) -> str | None:
    """What is wrong with `text` as a key. The length comes first, so that a huge one is never scanned or encoded."""
    if 1 <= len(text) <= bytes_max and text.isascii() and text.isprintable():
        return None  # Most keys are: a character is a byte, and none controls anything.
    size_rule = f"must be 1 to {bytes_max} bytes of UTF-8"
    if not 1 <= len(text) <= bytes_max:
        return size_rule
    if _NOT_IN_KEYS.search(text):
        return "must hold no control character and no lone surrogate"
    return size_rule if len(text.encode()) > bytes_max else None


def _is_finite(number: float) -> bool:
    """Whether `number` (an int of any size, too) is finite as a double."""
    return -_DOUBLE_BOUND < number < _DOUBLE_BOUND


def _seconds_since_epoch(moment: datetime) -> float:
    try:
        # Subtracted, not asked for its offset first: a tzinfo is the caller's code, and is called only once.
        return (moment - _EPOCH) / _SECOND
    except Exception as cause:
        raise _refusal("deadline", "must be aware, if it is a datetime (it has no usable offset from UTC)") from cause


def _refusal(
    field: str, rule: str, limit: object = None, error: type[RecoveryError] = InvalidEnvelope
) -> RecoveryError:
    sentence = f"{field} {rule}."
    return error(sentence, field=field, limit=limit) if issubclass(error, InvalidEnvelope) else error(sentence)


# Payloads and results


def encoded_payload(value: object) -> str:
    """The canonical JSON of a payload, made once: what is hashed, stored and handed to the worker.

    A payload is a `dict`, at most 16 deep (it is depth 0 itself, every member one more than what holds it), of at
    most 10,000 values and 65,536 bytes of canonical JSON. Every list item and every dict value is a value, lists and
    dicts among them; keys and the payload itself are not. What stands in two places counts twice.

    Raises `InvalidEnvelope` with the field `payload`; its sentence tells the depth, never a key or a value.
    """
    if type(value) is not dict:
        raise _refusal("payload", "must be a dict (a JSON object)")
    return _encoded(value, "payload", PAYLOAD_BYTES_MAX)


def encoded_result(value: object, bytes_max: int = RESULT_BYTES_MAX) -> str:
    """The canonical JSON of a result: any JSON value at the top, else the rules of a payload at `bytes_max` bytes.

    `None` is a result, and its text is `null`. Raises `InvalidEnvelope` with the field `result`.
    """
    return _encoded(value, "result", bytes_max)


def _encoded(value: object, field: str, bytes_max: int) -> str:
    text = _flat(value, bytes_max)
    if text is None:
        text = canonical_json(_Snapshot(field, bytes_max).take(value))
    size_bytes = _utf8_bytes(text)
    # Raised out here, where no UnicodeEncodeError, which holds the whole text, can become its context.
    if size_bytes is None:
        raise _refusal(field, "must hold no lone surrogate, in no key and no string")
    if size_bytes > bytes_max:
        raise _too_large(field, bytes_max)
    return text


def _flat(value: object, bytes_max: int) -> str | None:
    """The text of a small object of plain values, which most are; None for what has to be looked at more closely."""
    if type(value) is not dict or len(value) > FLAT_VALUES_MAX:
        return None
    copied = value.copy()  # At once: whatever another thread does to it meanwhile.
    size = 0
    for key, item in copied.items():
        length = _plain_length(item)
        if length is None or type(key) is not str:
            return None
        size += length + len(key)
    return canonical_flat(copied) if size <= bytes_max else None


def _plain_length(item: object) -> int | None:
    """At least how many characters a plain value takes; None for any other value."""
    kind = type(item)
    if isinstance(item, str):
        return len(item) if kind is str else None
    if isinstance(item, int) and kind is not bool:
        return 1 if kind is int and -DEADLINE_BOUND < item < DEADLINE_BOUND else None
    if isinstance(item, float):
        return 1 if kind is float and isfinite(item) else None
    return 1 if item is None or kind is bool else None


def _utf8_bytes(text: str) -> int | None:
    """The size of `text` in UTF-8, or None where it holds a lone surrogate."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def _too_large(field: str, bytes_max: int) -> RecoveryError:
    return _refusal(field, f"must be at most {bytes_max} bytes of canonical JSON", bytes_max)


class _Snapshot:
    """One walk that checks a value and copies it, so that what was checked is what is encoded.

    Each list or dict is copied first and then walked in the copy, whatever another thread does to the original
    meanwhile. A copy is never longer than the values that are still allowed, and no string is looked into, so that an
    oversized value costs no more than the largest allowed one. What contains itself runs into the depth.
    """

    def __init__(self, field: str, bytes_max: int) -> None:
        self._field = field
        self._bytes_max = bytes_max
        self._bytes = 0  # a lower bound: every value counts as its shortest possible encoding
        self._values = 0
        self._open: list[tuple[list[object] | dict[str, object], int]] = []

    def take(self, value: object) -> object:
        """The copy of `value`: all types are exact, and every limit holds but the exact size in bytes."""
        top = self._copy(value, 0)
        while self._open:
            self._walk(*self._open.pop())
        return top

    def _walk(self, node: list[object] | dict[str, object], depth: int) -> None:
        """Put checked copies in the place of what `node`, a copy itself, shares with the original."""
        if isinstance(node, list):
            node[:] = [self._copy(item, depth) for item in node]
        else:
            node.update([(key, self._copy(item, depth)) for key, item in node.items()])

    def _copy(self, value: object, depth: int) -> object:
        if depth > DEPTH_MAX:
            raise _refusal(self._field, f"must be at most {DEPTH_MAX} deep, and must not contain itself", DEPTH_MAX)
        if type(value) is not list and type(value) is not dict:
            return self._scalar(value, depth)
        node = self._bounded(value) if isinstance(value, list) else self._dict(value, depth)
        self._add_bytes(max(2, len(node) + 1))  # two brackets and the commas
        self._open.append((node, depth + 1))
        return node

    def _scalar(self, value: object, depth: int) -> object:
        """`value` itself: what is not a list or a dict cannot be changed by anybody."""
        if type(value) is int or type(value) is float:
            if not _is_finite(value):
                raise _refusal(self._field, f"must hold no number (at depth {depth}) that is not finite as a double")
        elif value is not None and type(value) is not bool and type(value) is not str:
            allowed = "str, int, float, bool, None, list and dict, and no subclass of them"
            raise _refusal(self._field, f"must hold (at depth {depth}) only {allowed}")
        self._add_bytes(len(value) + 2 if isinstance(value, str) else 1)
        return value

    def _dict(self, source: dict[object, object], depth: int) -> dict[str, object]:
        node: dict[str, object] = {}
        for key, item in self._bounded(source.items()):
            if type(key) is not str:
                raise _refusal(self._field, f"must have no key (at depth {depth}) that is not exactly a str")
            self._add_bytes(len(key) + 3)  # two quotes and the colon
            node[key] = item
        return node

    def _bounded(self, items: Iterable[_Item]) -> list[_Item]:
        """A copy of `items`, but of one more than is allowed at most."""
        try:
            copied = list(islice(items, VALUES_MAX - self._values + 1))
        except RuntimeError as cause:
            raise _refusal(self._field, "must not be changed while it is handed in") from cause
        self._values += len(copied)
        if self._values > VALUES_MAX:
            raise _refusal(self._field, f"must hold at most {VALUES_MAX} values", VALUES_MAX)
        return copied

    def _add_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes > self._bytes_max:
            raise _too_large(self._field, self._bytes_max)


# Reasons and error texts


def safe_text(value: object, bytes_max: int = REASON_BYTES_MAX) -> str:
    r"""`value` as a text that every backend can store, at most `bytes_max` bytes of UTF-8. It never refuses.

    What is not a `str` goes through `str()`; one that cannot be printed becomes `<unprintable Name>`. A NUL becomes
    the four characters `\x00`, a lone surrogate six, as in `\udc80`. The cut splits neither a character nor an escape.
    Only `KeyboardInterrupt` and `SystemExit` pass through: they may come from a signal and not from the value.
    """
    head = _printed(value, bytes_max)
    text = _NOT_STORABLE.sub(_escape, head)
    if len(text.encode()) <= bytes_max:
        return text
    pieces = [_NOT_STORABLE.sub(_escape, character) for character in head]
    ends = accumulate(len(piece.encode()) for piece in pieces)
    return "".join(piece for piece, end in zip(pieces, ends, strict=True) if end <= bytes_max)


def _printed(value: object, length: int) -> str:
    """The first `length` characters: no character is shorter than a byte, so what follows is cut away in any case."""
    try:
        text = cast("str", value) if issubclass(type(value), str) else str(value)
        # Through `str` itself, which answers with an exact str also for a subclass that has its own ideas.
        return str.__getitem__(text, slice(length))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a failure path must not fail, whatever the object raises
        return f"<unprintable {_class_name(value)}>"[:length]


def _class_name(value: object) -> str:
    """The name of the class as the interpreter has it: a metaclass may answer `__name__` with something else."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return r"\x00" if character == "\0" else f"\\u{ord(character):04x}"
