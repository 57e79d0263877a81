"""JSON Lines to envelopes, strictly: what two readers could understand differently is refused."""

from __future__ import annotations

import json
from typing import Any, Final

from recovery.errors import InvalidEnvelope
from recovery.messages import Envelope

REQUIRED: Final = ("message_id", "deadline", "payload")
OPTIONAL: Final = ("max_attempts", "hops", "kind", "sender")


def envelope(line: bytes, principal: str) -> Envelope:
    """The envelope of one line; `sender` defaults to the principal. Raises InvalidEnvelope."""
    fields = _decoded(line)
    if not isinstance(fields, dict):
        raise InvalidEnvelope("a line must be one JSON object.")
    if unknown := sorted(fields.keys() - {*REQUIRED, *OPTIONAL}):
        raise InvalidEnvelope(f"unknown key {unknown[0]!r}.", field=unknown[0])
    if missing := [name for name in REQUIRED if name not in fields]:
        raise InvalidEnvelope(f"the key {missing[0]!r} is missing.", field=missing[0])
    return Envelope(**{"sender": principal, **fields})


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except InvalidEnvelope:
        raise
    except UnicodeDecodeError as error:
        raise InvalidEnvelope("the line is not UTF-8.") from error
    except RecursionError as error:
        raise InvalidEnvelope("the JSON is nested too deeply.") from error
    except ValueError as error:
        raise InvalidEnvelope("the line is not JSON.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidEnvelope(f"the key {key!r} stands twice in one object.", field=key)
        found[key] = value
    return found


def _constant(name: str) -> Any:
    raise InvalidEnvelope(f"{name} is not JSON.")
