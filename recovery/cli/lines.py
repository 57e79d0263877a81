"""JSON Lines to envelopes, strictly: what two readers could understand differently is refused.

A refusal never repeats a value, nor a key other than ours: both may be secret, and errors end up in logs.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from recovery.errors import InvalidEnvelope
from recovery.messages import Envelope

REQUIRED: Final = ("message_id", "deadline", "payload")
OPTIONAL: Final = ("max_attempts", "hops", "kind", "sender", "queue", "priority")
KNOWN: Final = (*REQUIRED, *OPTIONAL)
LINE_BYTES_MAX: Final = 1024 * 1024
"""Far above the largest payload with every character escaped: only so much of a line is ever held in memory."""


def numbered(lines: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1. A byte order mark before the first is left out."""
    number = 0
    while line := lines.readline(LINE_BYTES_MAX + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield number, line


def envelope(line: bytes, principal: str) -> Envelope:
    """The envelope of one line; `sender` defaults to the principal. Raises InvalidEnvelope."""
    if len(line) > LINE_BYTES_MAX:
        raise InvalidEnvelope(f"a line must be at most {LINE_BYTES_MAX} bytes.", limit=LINE_BYTES_MAX)
    fields = _decoded(line)
    if not isinstance(fields, dict):
        raise InvalidEnvelope("a line must be one JSON object.")
    if fields.keys() - {*KNOWN}:
        raise InvalidEnvelope(f"a line has no other keys than {', '.join(KNOWN)}.")
    if missing := [name for name in REQUIRED if name not in fields]:
        raise InvalidEnvelope(f"the key {missing[0]!r} is missing.", field=missing[0])
    return Envelope(**{"sender": principal, **fields})


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except InvalidEnvelope:
        raise
    except UnicodeDecodeError as error:
        raise InvalidEnvelope(f"the line is not UTF-8, from byte {error.start + 1} on.") from error
    except RecursionError as error:
        raise InvalidEnvelope("the JSON is nested too deeply.") from error
    except json.JSONDecodeError as error:
        raise InvalidEnvelope(f"the line is not JSON, from character {error.pos + 1} on.") from error
    except ValueError as error:  # Python's own bound on the digits of an int.
        raise InvalidEnvelope("the line holds a number that is not finite as a double.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            said = f"the key {key!r}" if key in KNOWN else "a key"
            raise InvalidEnvelope(f"{said} stands twice in one object.", field=key if key in KNOWN else "")
        found[key] = value
    return found


def _constant(name: str) -> Any:
    raise InvalidEnvelope(f"{name} is not JSON.")
