"""One delivery: what counts as a confirmation, and what is written down of anything else. Pure, for both doors."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Final

from recovery.accepting import safe_text
from recovery.backend import is_database_error
from recovery.errors import InvalidEnvelope, Misconfigured, PayloadCollision, RecoveryError, Unauthorized
from recovery.messages import Delivery, Receipt

REFUSALS: Final = (PayloadCollision, InvalidEnvelope, Unauthorized)
"""Answers that the same bytes will get again, however often they are sent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt: delivered or not, whether for good, and what is kept of the reason."""

    delivered: bool
    duplicate: bool = False
    permanent: bool = False
    error: str | None = None


def answered(answer: object, delivery: Delivery) -> Outcome:
    """The outcome where the receiver returned something. Only the expected confirmation confirms."""
    confirmed = (
        type(answer) is Receipt
        and answer.ack == "stored"
        and answer.reply_id == delivery.reply_id
        and type(answer.duplicate) is bool
    )
    if confirmed and isinstance(answer, Receipt):
        return Outcome(delivered=True, duplicate=answer.duplicate)
    return Outcome(delivered=False, error="the answer was not the expected confirmation")


def refused(error: Exception) -> Outcome:
    """The outcome where the receiver or the transport raised."""
    return Outcome(delivered=False, permanent=isinstance(error, REFUSALS), error=described(error))


def described(error: Exception) -> str:
    """What may be stored of an error: what the receiver said, and never what a database said to it."""
    name = type(error).__name__
    if is_database_error(error):
        return f"{name} from the receiver's database"
    return safe_text(error if isinstance(error, RecoveryError) else f"{name}: {safe_text(error)}")


def is_async(receiver: Any) -> bool:
    """Whether a receiver's `accept` is a coroutine function. Raises Misconfigured for one without `accept`."""
    accept = getattr(receiver, "accept", None)
    if not callable(accept):
        raise Misconfigured("a receiver has a method accept(reply_id, payload) that returns a Receipt.")
    return inspect.iscoroutinefunction(accept)
