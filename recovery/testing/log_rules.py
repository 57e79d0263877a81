"""Rules about answers: what was told is stored, what was refused is not, and what nobody heard is one of two things."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from recovery.testing.evidence import Evidence, Hold, Row, hold_key, named
from recovery.testing.history import FAIL, OK, UNKNOWN, Operation
from recovery.testing.promises import ENDED, TASK, sha256, task_id
from recovery.testing.row_rules import Found

EXPECTED: tuple[str, ...] = ("Busy", "CommitUnknown", "Fenced", "PayloadCollision", "Unavailable")
"""The errors that faults and rivals may bring. Any other is a finding by itself."""


def answered_is_recorded(of: Evidence) -> Found:
    """What an actor was told came to pass, and stayed."""
    yield from _claims_recorded(of)
    yield from _endings_recorded(of)
    for one in of.named("cancel", events=(OK,)):
        states = {row["state"] for row in of.tasks.get(one.asked["task_id"], [])}
        if states - ({"cancelled"} if one.answered["cancelled"] else ENDED):
            yield named(TASK, one.asked["task_id"]), f"{one} was told {one.answered['cancelled']}; it is {states}"
    for one in of.named("accept", events=(OK,)):
        if not _has_receipt(of, one):
            yield one.asked["reply_id"], f"{one} confirmed it, and there is no receipt with these bytes"


def _claims_recorded(of: Evidence) -> Found:
    for grant in of.grants:
        hold = of.holds_by_key.get(grant.key)
        if hold is None or (hold.owner, hold.attempt) != (grant.owner, grant.attempt):
            yield named(*grant.key[:2]), f"{grant.operation} was given fence {grant.fence}, and the journal has {hold}"


def _endings_recorded(of: Evidence) -> Found:
    for one in of.named("finish", "finish_and_claim", events=(OK,)):
        if not _is_finished(of, one):
            yield named(*hold_key(one)[:2]), f"{one} was told that it is done with its result"
    for one in of.named("fail", "release", "settle", events=(OK,)):
        left = _left(of, one)
        told = None if left is None else left["to_state"]
        if told != one.answered["state"]:
            yield named(*hold_key(one)[:2]), f"{one} was told {one.answered['state']}, and the journal says {told}"


def moves_are_asked_for(of: Evidence) -> Found:
    """Nothing happens by itself: behind every ending that only an actor can bring about is one that asked for it."""
    cancels = {one.asked["task_id"] for one in of.named("cancel", events=(OK, UNKNOWN))}
    for holds in of.holds.values():
        for hold in holds:
            if hold.left is not None and not _is_asked_for(of, hold, hold.left["to_state"]):
                yield hold.name, f"fence {hold.fence} ended as {hold.left['to_state']}, and its holder asked for none"
    for (subject, identity), moves in of.journal.items():
        if subject == TASK and any(move["to_state"] == "cancelled" for move in moves) and identity not in cancels:
            yield named(subject, identity), "it is cancelled, and nobody asked for that"
    sent = {task_id(one.asked["principal"], one.asked["message_id"]) for one in of.named("receive")}
    for identity in of.tasks.keys() - sent:
        yield named(TASK, identity), "nobody sent it"


def _is_asked_for(of: Evidence, hold: Hold, state: str) -> bool:
    asked = of.asked_of_holds.get(hold.key, [])
    if state == "done":
        return any(one.name in ("finish", "finish_and_claim") for one in asked)
    if state == "sent":
        return any(one.name == "settle" and one.asked["delivered"] for one in asked)
    if state == "failed" and any(hold.attempt < row["max_attempts"] for row in of.tasks.get(hold.task_id, [])):
        return any(one.name == "fail" and not one.asked["retryable"] for one in asked)
    return True


def refused_changed_nothing(of: Evidence) -> Found:
    """Of what was refused nothing is stored, unless another asked for the very same."""
    for name, mark, stored in (("receive", "fingerprint", _stored_inbox), ("accept", "payload", _stored_receipts)):
        hoped = {(_identity(one), one.asked[mark]) for one in of.named(name, events=(OK, UNKNOWN))}
        for one in of.named(name, events=(FAIL,)):
            identity = _identity(one)
            if (identity, one.asked[mark]) not in hoped and one.asked[mark] in stored(of, identity):
                yield identity, f"{one} was refused with {one.answered['error']}, and it is stored"
    for one in of.named("receive", events=(FAIL,)):
        collides = one.answered["error"] == "PayloadCollision"
        if collides and set(_stored_inbox(of, _identity(one))) <= {one.asked["fingerprint"]}:
            yield named(TASK, _identity(one)), f"{one} was told of other content, and there is none"


def no_other_error(of: Evidence) -> Found:
    """No actor met an error that neither a fault nor a rival explains."""
    for one in of.operations:
        error = one.answered.get("error")
        if error is not None and error not in EXPECTED:
            yield one.actor, f"{one} met {error}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """How many operations without an answer turned out to be done, and how many not."""

    done: int
    not_done: int


def resolved(of: Evidence) -> Resolved:
    """What became of the unknown operations whose outcome can be told from the rows."""
    outcomes = Counter(_is_done(of, one) for one in of.named(*_TELLABLE, events=(UNKNOWN,)))
    return Resolved(outcomes[True], outcomes[False])


_TELLABLE = ("receive", "finish", "finish_and_claim", "fail", "release", "settle", "accept", "cancel")


def _is_done(of: Evidence, one: Operation) -> bool:
    if one.name == "receive":
        return one.asked["fingerprint"] in _stored_inbox(of, _identity(one))
    if one.name == "accept":
        return _has_receipt(of, one)
    if one.name == "cancel":
        return any(row["state"] == "cancelled" for row in of.tasks.get(one.asked["task_id"], []))
    if one.name in ("finish", "finish_and_claim"):
        return _is_finished(of, one)
    return _left(of, one) is not None


def unknown_is_one_of_two(of: Evidence) -> Found:
    """What nobody heard an answer to is done as a whole, or not at all."""
    yield from _unknown_receives(of)
    yield from _unknown_finishes(of)
    yield from _unknown_claims(of)
    for one in of.named("accept", events=(UNKNOWN,)):
        identity = one.asked["reply_id"]
        counts = {len(of.receipts.get(identity, [])), len(of.effects.get(identity, []))}
        if of.own_effects is not None:
            counts.add(len(of.own_effects.get(identity, [])))
        if counts not in ({0}, {1}):
            yield identity, f"{one}: receipts and effects are neither all there nor all absent"


def _unknown_receives(of: Evidence) -> Found:
    asked = defaultdict(set)
    for one in of.named("receive", events=(OK, UNKNOWN)):
        asked[_identity(one)].add(one.asked["fingerprint"])
    for one in of.named("receive", events=(UNKNOWN,)):
        identity = _identity(one)
        counts = len(of.inbox.get(identity, [])), len(of.tasks.get(identity, []))
        if counts not in ((0, 0), (1, 1)):
            yield named(TASK, identity), f"{one}: {counts[0]} inbox rows, {counts[1]} task rows"
        elif set(_stored_inbox(of, identity)) - asked[identity]:
            yield named(TASK, identity), f"{one}: what is stored is what nobody sent"


def _unknown_finishes(of: Evidence) -> Found:
    for one in of.named("finish", "finish_and_claim", events=(UNKNOWN,)):
        left = _left(of, one)
        if left is None or left["to_state"] != "done":
            continue
        results = {other.asked["result"] for other in of.asked_of_holds[hold_key(one)] if "result" in other.asked}
        if not any(_has_result(row, results) for row in of.tasks.get(one.asked["task_id"], [])):
            yield named(*hold_key(one)[:2]), f"{one}: it is done under this fence, with a result that nobody gave"


def _unknown_claims(of: Evidence) -> Found:
    """An owner holds no more than it was told of, and what its unanswered claims may have taken."""
    told = {grant.key for grant in of.grants}
    unheard: Counter[str] = Counter()
    for one in of.named("claim", "claim_reply", "finish_and_claim", events=(UNKNOWN,)):
        unheard[one.asked["owner"]] += one.asked["limit"]
    untold = Counter(hold.owner for key, hold in of.holds_by_key.items() if key not in told)
    for owner, count in untold.items():
        if count > unheard[owner]:
            yield (
                f"owner {owner}",
                f"{count} claims that it was not told of; its unanswered calls explain {unheard[owner]}",
            )


def _identity(one: Operation) -> str:
    if one.name == "accept":
        return str(one.asked["reply_id"])
    return task_id(one.asked["principal"], one.asked["message_id"])


def _stored_inbox(of: Evidence, identity: str) -> Iterator[str]:
    return (row["fingerprint"] for row in of.inbox.get(identity, []))


def _stored_receipts(of: Evidence, identity: str) -> Iterator[str]:
    return (row["content_hash"] for row in of.receipts.get(identity, []))


def _has_receipt(of: Evidence, one: Operation) -> bool:
    return one.asked["payload"] in _stored_receipts(of, one.asked["reply_id"])


def _has_result(row: Row, hashes: set[str]) -> bool:
    return row["result"] is not None and sha256(row["result"]) in hashes


def _is_finished(of: Evidence, one: Operation) -> bool:
    rows = of.tasks.get(one.asked["task_id"], [])
    return any(
        row["state"] == "done" and row["fence"] == one.asked["fence"] and _has_result(row, {one.asked["result"]})
        for row in rows
    )


def _left(of: Evidence, one: Operation) -> Row | None:
    hold = of.holds_by_key.get(hold_key(one))
    return None if hold is None else hold.left
