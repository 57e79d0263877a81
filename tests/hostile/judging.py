"""Whether what a way to the verbs raises is the refusal that the contract asks for."""

from __future__ import annotations

from typing import Any

from recovery import BatchFailed, InvalidEnvelope, Unauthorized
from tests.hostile.refused_values import SENDERS, Row, good
from tests.hostile.ways import Way, raised
from tests.plugins.queues import AUTH


def wrong_with(error: Any, row: Row) -> str | None:
    """What is wrong with a refusal; None where it is the one that the contract asks for."""
    if type(error) is not InvalidEnvelope or not isinstance(error, ValueError):
        return f"{type(error).__name__} instead of InvalidEnvelope"
    if row.field != error.field or row.field not in str(error).lower():
        return f"it names {error.field!r} and says {str(error)!r}"
    if row.limit is not None and not (row.limit == error.limit and _tells(str(error), row.limit)):
        return f"its limit is {error.limit!r} and it says {str(error)!r}"
    return None


def _tells(sentence: str, limit: int) -> bool:
    """Whether the limit stands in the sentence."""
    return str(limit) in sentence or (limit == 2**53 and "2^53" in sentence)


def cause_of(error: Any) -> Any:
    """What ended a batch at its first item, with nothing stored before it; else the error itself."""
    if type(error) is not BatchFailed or (error.acks, error.index) != ((), 0):
        return error
    return error.cause if error.cause is error.__cause__ else error


def received(way: Way, envelope: Any, auth: Any, before: int = 1) -> dict[str, Any]:
    """What each verb that takes an envelope raises for this one, by its name."""
    around = [*[good("m-before")] * before, envelope, good("m-after")]
    found = {
        "receive": raised(lambda: way.verbs.receive(envelope, auth)),
        "receive_all": raised(lambda: way.verbs.receive_all(around, auth)),
    }
    if not way.is_bound:
        found["receive_batch"] = cause_of(raised(lambda: way.verbs.receive_batch([envelope], auth)))
    return found


def wrong_envelopes(way: Way, rows: list[Row]) -> dict[tuple[str, str], str]:
    """What is wrong with the refusals of envelopes, by the rule and the verb."""
    return {
        (str(row), verb): why
        for row in rows
        for verb, error in received(way, good(**{row.field: row.value}), AUTH).items()
        if (why := wrong_with(error, row))
    }


def wrong_senders(way: Way) -> dict[tuple[str, str], str]:
    """The same for those who may not send."""
    wrong = {}
    for rule, auth, sender in SENDERS:
        for verb, error in received(way, good(sender=sender), auth).items():
            named = any(word in str(error) for word in ("AuthContext", "principal", "sender"))
            if (type(error), isinstance(error, ValueError), named) != (Unauthorized, True, True):
                wrong[rule, verb] = repr(error)
    return wrong
