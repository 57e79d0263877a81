"""One delivery: what counts as a confirmation, and what is written down of anything else. Pure, for both doors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from recovery.accepting import safe_text
from recovery.backend import is_database_error
from recovery.errors import InvalidEnvelope, Misconfigured, PayloadCollision, RecoveryError, Unauthorized
from recovery.messages import Delivery, Receipt

DRIVERS: Final = frozenset({"apsw", "asyncpg", "psycopg2", "pymongo"})
PEP_249: Final = frozenset({"DatabaseError", "InterfaceError"})
"""A receiver may use any database. Their errors are known by these bases of PEP 249, else by the driver's package."""

REFUSALS: Final = (PayloadCollision, InvalidEnvelope, Unauthorized)
"""Answers that the same bytes will get again, however often they are sent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt: delivered or not, whether for good, and what is kept of the reason."""

    delivered: bool
    duplicate: bool = False
    permanent: bool = False
    error: str | None = field(default=None, repr=False)


class NoReceiver(Misconfigured):
    """What was given as a receiver is none, whatever the reply."""


def answered(answer: object, delivery: Delivery) -> Outcome:
    """The outcome where the receiver returned something. Only the expected confirmation confirms."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise NoReceiver("the receiver's accept returned an awaitable; write it as async def, for an AsyncQueue.")
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
    """The outcome where the receiver or the transport raised. Raises NoReceiver again: it is no answer to a reply."""
    if isinstance(error, NoReceiver):
        raise error
    return Outcome(delivered=False, permanent=isinstance(error, REFUSALS), error=described(error))


def described(error: Exception) -> str:
    """What may be stored of an error: what the receiver said, and never what a database said to it."""
    name = type(error).__name__
    if any(_is_from_database(one) for one in _around(error)):
        ours = error.default_sentence() if isinstance(error, RecoveryError) else ""
        return safe_text(ours or f"{name} from the receiver's database")
    return safe_text(error if isinstance(error, RecoveryError) else f"{name}: {safe_text(error)}")


def _around(error: BaseException) -> Iterator[BaseException]:
    """The error and all that it came from: whoever wraps an error likes to repeat what it said."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]


def _is_from_database(error: BaseException) -> bool:
    bases = type(error).__mro__
    packages = {base.__module__.partition(".")[0] for base in bases}
    return is_database_error(error) or bool(packages & DRIVERS) or bool({base.__name__ for base in bases} & PEP_249)


def is_async(receiver: Any) -> bool:
    """Whether a receiver's `accept` is a coroutine function. Raises Misconfigured for one without `accept`."""
    accept = getattr(receiver, "accept", None)
    if not callable(accept):
        raise NoReceiver("a receiver has a method accept(reply_id, payload) that returns a Receipt.")
    return inspect.iscoroutinefunction(accept)
