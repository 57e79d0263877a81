"""One text for one value: canonical JSON, and the ids and fingerprints that are made from it.

Stored identities depend on every byte that is written here, so nothing in this module changes; a new rule gets a new
version. Golden values stand in `tests/unit/test_canonical.py`. What is acceptable is decided in `accepting`, not here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined] # None without C code
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

FINGERPRINT_VERSION: Final = "v1"
REPLY_PREFIX: Final = "reply:"
NO_EXTRAS: Final[Mapping[str, object]] = MappingProxyType({})

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))

_SORTED, _SKIPPING, _NAN = True, False, False
_FLAT: Final[Any] = c_make_encoder and c_make_encoder(
    None, None, encode_basestring, None, ":", ",", _SORTED, _SKIPPING, _NAN
)
"""The same encoder, made once, without the list of what it is in the middle of; None where Python has no C code."""


def canonical_json(value: object) -> str:
    """The one text of `value`: keys sorted by code point, no blanks, non-ASCII left as it is.

    Object keys must be `str`. Raises `ValueError` for NaN, an infinity or a value that contains itself, `TypeError`
    for what JSON does not have.
    """
    # What the encoder does with these, without its preparations.
    if type(value) is str:
        return encode_basestring(value)
    if type(value) is int:
        return int.__repr__(value)
    if type(value) is float and isfinite(value):
        return float.__repr__(value)
    return _ENCODER.encode(value)


def canonical_object(members: Mapping[str, str]) -> str:
    """The canonical object whose values are given as canonical JSON texts, so that a payload is encoded only once."""
    return "{" + ",".join(f"{canonical_json(key)}:{members[key]}" for key in sorted(members)) + "}"


def canonical_flat(value: dict[str, str | float | bool | None]) -> str:
    """The canonical text of an object that holds no list and no object: nothing in it can contain itself."""
    if _FLAT is None:
        return canonical_json(value)
    return "".join(_FLAT(value, 0))


def content_hash(text: str) -> str:
    """Lower-case hex SHA-256 of `text` in UTF-8. Raises `UnicodeEncodeError` for a lone surrogate."""
    return hashlib.sha256(text.encode()).hexdigest()


def task_id(principal: str, message_id: str) -> str:
    """The task that this message of this principal asks for: 64 hex digits, the same ones for every replay."""
    return content_hash(f"[{canonical_json(principal)},{canonical_json(message_id)}]")


def reply_id(task_id: str) -> str:
    """The id of the one reply that the task `task_id` ever has."""
    return REPLY_PREFIX + task_id


def fingerprint(
    *,
    deadline: float,
    hops: int,
    kind: str,
    max_attempts: int,
    message_id: str,
    payload: str,
    sender: str,
    extras: Mapping[str, object] = NO_EXTRAS,
) -> str:
    """What tells a duplicate from a collision: `v1:` and the hex SHA-256 over an explicit list of fields.

    `deadline` is in seconds since the epoch, `payload` is its canonical JSON text. `extras` are fields that came with
    a later release: only those that differ from their default, so that a replay after an upgrade never collides.
    Raises `ValueError` when one of them has the name of a listed field.
    """
    deadline += 0.0  # one text for 2000 and 2000.0, and for 0.0 and -0.0
    if not extras:
        text = (
            f'{{"deadline":{canonical_json(deadline)},"hops":{canonical_json(hops)},"kind":{canonical_json(kind)},'
            f'"max_attempts":{canonical_json(max_attempts)},"message_id":{canonical_json(message_id)},'
            f'"payload":{payload},"sender":{canonical_json(sender)}}}'
        )
        return f"{FINGERPRINT_VERSION}:{content_hash(text)}"
    listed = {
        "deadline": deadline,
        "hops": hops,
        "kind": kind,
        "max_attempts": max_attempts,
        "message_id": message_id,
        "sender": sender,
    }
    if taken := extras.keys() & {*listed, "payload"}:
        raise ValueError(f"a fingerprint has these fields already: {', '.join(sorted(taken))}.")
    members = {name: canonical_json(value) for name, value in {**listed, **extras}.items()}
    return f"{FINGERPRINT_VERSION}:{content_hash(canonical_object({**members, 'payload': payload}))}"


def reply_text(task_id: str, state: str, result_text: str) -> str:
    """What the receiver gets: the bytes of the reply, as text.

    `state` is the terminal state of the task. `result_text` is canonical JSON already: the result of a task that is
    done, or else the reason as a JSON string.
    """
    status, identity = canonical_json(state), canonical_json(task_id)
    return f'{{"kind":"result","result":{result_text},"status":{status},"task_id":{identity}}}'
