"""Who may send what. Checked in this order, before anything is written: type, authority, structure, size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.accepting import checked_deadline, checked_int, checked_text, encoded_payload
from recovery.canonical import NO_EXTRAS, fingerprint, task_id
from recovery.errors import InvalidEnvelope, Unauthorized
from recovery.messages import DEFAULT_QUEUE, AuthContext, Envelope
from recovery.settings import Settings

ATTEMPTS_MAX = 10
HOPS_MAX = 2**31 - 1
PRIORITY_MAX = 9
_DEFAULTS = {"queue": DEFAULT_QUEUE, "priority": 0}


@dataclass(slots=True, eq=False)
class Admitted:
    """An envelope that was checked and encoded, once: what is hashed is what is stored is what the worker gets."""

    task_id: str
    principal: str
    message_id: str
    kind: str
    fingerprint: str
    payload: str = field(repr=False)
    deadline: float
    hops: int
    max_attempts: int
    queue: str
    priority: int


def admit(envelope: Envelope, auth: AuthContext, settings: Settings) -> Admitted:
    """Check and encode one envelope. Raises InvalidEnvelope or Unauthorized; touches no database."""
    if type(envelope) is not Envelope:
        raise InvalidEnvelope("an Envelope is wanted, and nothing else will do.", field="envelope")
    principal = _authority(envelope, auth, settings)
    return _structure(envelope, principal)


def _authority(envelope: Envelope, auth: AuthContext, settings: Settings) -> str:
    if type(auth) is not AuthContext or type(auth.principal) is not str:
        raise Unauthorized("an AuthContext made by the adapter that authenticated the connection is wanted.")
    if auth.principal not in settings.allowed_sources:  # Which are text keys all of them.
        raise Unauthorized("the principal is not among the allowed sources of this queue.")
    if type(envelope.sender) is not str or envelope.sender != auth.principal:
        raise Unauthorized("the envelope's sender is not the principal that was authenticated.")
    return auth.principal


def _structure(envelope: Envelope, principal: str) -> Admitted:
    message_id = checked_text(envelope.message_id, "message_id")
    if type(envelope.kind) is not str or envelope.kind != "task":
        raise InvalidEnvelope("kind must be 'task': a result never becomes a task by itself.", field="kind")
    deadline = checked_deadline(envelope.deadline)
    max_attempts = checked_int(envelope.max_attempts, "max_attempts", 1, ATTEMPTS_MAX)
    hops = checked_int(envelope.hops, "hops", 0, HOPS_MAX)
    queue = checked_text(envelope.queue, "queue")
    priority = checked_int(envelope.priority, "priority", 0, PRIORITY_MAX)
    payload = encoded_payload(envelope.payload)
    mark = fingerprint(
        deadline=deadline,
        hops=hops,
        kind="task",
        max_attempts=max_attempts,
        message_id=message_id,
        payload=payload,
        sender=principal,
        extras=_unusual(queue, priority),
    )
    identity = task_id(principal, message_id)
    budget = (deadline, hops, max_attempts)
    return Admitted(identity, principal, message_id, "task", mark, payload, *budget, queue, priority)


def _unusual(queue: str, priority: int) -> Mapping[str, object]:
    """The fields that came with a later release, where they differ from what an older one stored."""
    later = {"queue": queue, "priority": priority}
    if later == _DEFAULTS:
        return NO_EXTRAS
    return {name: value for name, value in later.items() if value != _DEFAULTS[name]}
