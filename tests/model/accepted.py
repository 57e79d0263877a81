"""Sections 1 and 2 of the contract: what a message is known by, and what is accepted. Written from that page alone."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.model.things import Refused, Thing, invalid, refused

KEY_BYTES, PAYLOAD_BYTES, REASON_BYTES = 128, 64 * 1024, 2048
DEPTH, VALUES, QUEUES, BATCH = 16, 10_000, 32, 10_000
TIME_BOUND = 2**53


def canonical(value: Any) -> str:
    """Canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256(text: str) -> str:
    """Lower-case hex SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_key(value: object) -> bool:
    """Whether it is a text key: 1 to 128 bytes, no control character, no lone surrogate."""
    if type(value) is not str:
        return False
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        return False
    return 1 <= len(value.encode()) <= KEY_BYTES


def is_int(value: object, low: int, high: int) -> bool:
    """Whether it is exactly an int within bounds, both allowed."""
    return type(value) is int and low <= value <= high


def queues_refused(queues: object) -> Refused | None:
    """Why a claim may not name these queues."""
    if isinstance(queues, tuple | list) and 1 <= len(queues) <= QUEUES and all(is_key(queue) for queue in queues):
        return None
    return invalid("queues")


def json_text(value: object, name: str, bytes_max: int) -> str:
    """The canonical JSON of a payload or result that keeps every rule."""
    _walk(value, name)
    text = canonical(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise invalid(name) from None
    if size > bytes_max:
        raise invalid(name)
    return text


def _walk(top: object, name: str) -> None:
    waiting, count = [(top, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        inner = _members(value, name)
        count += len(inner)
        if depth > DEPTH or count > VALUES:
            raise invalid(name)
        waiting += [(one, depth + 1) for one in inner]


def _members(value: Any, name: str) -> list[object]:
    if value is None or type(value) in {str, bool}:
        return []
    if type(value) in {int, float}:
        try:
            finite = math.isfinite(value)
        except OverflowError:
            finite = False
        if finite:
            return []
    if type(value) is list:
        return list(value)
    if type(value) is dict and all(type(key) is str for key in value):
        return list(value.values())
    raise invalid(name)


def deadline_of(value: object) -> float | None:
    """A deadline in seconds since the epoch; None where it is none."""
    if type(value) is datetime:
        return value.timestamp() if value.utcoffset() is not None else None
    if (type(value) is int or type(value) is float) and -TIME_BOUND < value < TIME_BOUND:
        return float(value) + 0.0  # -0.0 equals 0.0, and equal deadlines have one fingerprint
    return None


def said(reason: object) -> str:
    r"""A reason as it is stored. That a NUL is shown as `\x00` and a surrogate as `\udc80` is the product's own choice.

    The page says no more than "escaped visibly" and "cut at 2 KiB".
    """
    pieces, size = [], 0
    for character in str(reason)[:REASON_BYTES]:
        bad = character == "\0" or unicodedata.category(character) == "Cs"
        piece = character.encode("unicode_escape").decode() if bad else character
        size += len(piece.encode())
        if size > REASON_BYTES:
            break
        pieces.append(piece)
    return "".join(pieces)


@dataclass(frozen=True)
class Message:
    """An envelope that was accepted."""

    task_id: str
    principal: str
    message_id: str
    fingerprint: str
    payload: str
    deadline: float
    hops: int
    max_attempts: int
    queue: str
    priority: int


def accept(envelope: object, auth: object, sources: frozenset[str]) -> Message:
    """The message, or a refusal, in the order of the contract: type, authority, structure, size."""
    if not isinstance(envelope, Thing) or envelope.kind != "Envelope":
        raise invalid("envelope")
    if not isinstance(auth, Thing) or auth.kind != "AuthContext" or not _may(auth["principal"], envelope, sources):
        raise refused("Unauthorized")
    given = envelope.fields
    deadline = deadline_of(given["deadline"])
    checks = {
        "message_id": is_key(given["message_id"]),
        "kind": type(given["kind"]) is str and given["kind"] == "task",
        "deadline": deadline is not None,
        "max_attempts": is_int(given["max_attempts"], 1, 10),
        "hops": is_int(given["hops"], 0, 2**31 - 1),
        "queue": is_key(given["queue"]),
        "priority": is_int(given["priority"], 0, 9),
        "payload": type(given["payload"]) is dict,
    }
    offences, payload = [name for name, kept in checks.items() if not kept], ""
    try:
        payload = json_text(given["payload"], "payload", PAYLOAD_BYTES)
    except Refused:
        offences.append("payload")
    if offences or deadline is None:
        raise invalid(*offences)
    return _message(given, deadline, payload)


def _may(principal: object, envelope: Thing, sources: frozenset[str]) -> bool:
    allowed = type(principal) is str and principal in sources
    return allowed and type(envelope["sender"]) is str and envelope["sender"] == principal


def _message(given: dict[str, Any], deadline: float, payload: str) -> Message:
    listed: dict[str, Any] = {
        "deadline": deadline,
        "hops": given["hops"],
        "kind": "task",
        "max_attempts": given["max_attempts"],
        "message_id": given["message_id"],
        "payload": given["payload"],
        "sender": given["sender"],
    }
    listed |= {"queue": given["queue"]} if given["queue"] != "default" else {}
    listed |= {"priority": given["priority"]} if given["priority"] != 0 else {}
    return Message(
        task_id=sha256(canonical([given["sender"], given["message_id"]])),
        principal=given["sender"],
        message_id=given["message_id"],
        fingerprint="v1:" + sha256(canonical(listed)),
        payload=payload,
        deadline=deadline,
        hops=given["hops"],
        max_attempts=given["max_attempts"],
        queue=given["queue"],
        priority=given["priority"],
    )
