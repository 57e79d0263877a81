"""Storing what became of many deliveries in one transaction, each with a verdict of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from recovery import states
from recovery.accepting import checked_int, is_text_key, safe_text
from recovery.backend import rows
from recovery.errors import InvalidEnvelope, RecoveryError, StatementFailed
from recovery.messages import Delivery, Settlement, Verdict
from recovery.repositories import leases
from recovery.repositories.batches import checked, verdicts
from recovery.repositories.holding import settle_statement
from recovery.repositories.journal import REPLY, transition
from recovery.settings import Settings

if TYPE_CHECKING:
    from recovery.repositories.outbox import OutboxRepository


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery and what became of it, with the wait before it is sent again."""

    delivery: Delivery
    delivered: bool
    permanent: bool
    said: str | None
    wait_seconds: float


Asked: TypeAlias = Sent | RecoveryError
Numbered: TypeAlias = tuple[int, Sent]


def asked(items: Iterable[Settlement], settings: Settings) -> list[Asked]:
    """The items, checked; for one that breaks a rule its error."""
    return checked(items, lambda item: _checked(item, settings))


def _checked(item: Settlement, settings: Settings) -> Sent:
    if type(item) is not Settlement:
        raise InvalidEnvelope("a Settlement is wanted.", field="items")
    delivery = item.delivery
    if type(delivery) is not Delivery:
        raise refusal()
    checked_int(delivery.attempt, "delivery", 0, 2**31 - 1)
    for name in ("delivered", "permanent"):
        if type(getattr(item, name)) is not bool:
            raise InvalidEnvelope(f"{name} must be True or False.", field=name)
    delivered = item.delivered
    said = None if delivered else safe_text("no reason given" if item.error is None else item.error)
    wait = 0.0 if delivered else settings.delivery_wait_seconds(delivery.attempt)
    return Sent(delivery, delivered, item.permanent, said, wait)


def settle_all(room: OutboxRepository, items: Sequence[Asked]) -> list[Verdict]:
    """A verdict for each item, in order."""
    return verdicts(room, items, lambda item: item.delivery, partial(_composed, room), partial(_in_steps, room))


def _in_steps(room: OutboxRepository, items: Sequence[Numbered]) -> dict[int, Verdict]:
    said: dict[int, Verdict] = {}
    targets: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    moves = []
    found = leases.locked(room.connection, room.leased, [item.delivery.reply_id for _, item in items])
    now = room.now()
    for index, item in items:
        delivery = item.delivery
        row = found.get(delivery.reply_id) if is_text_key(delivery.reply_id) else None
        error = leases.broken(row, room.leased, delivery.reply_id, delivery.owner, delivery.fence, now)
        target = None if error else _target(row, item)
        said[index] = Verdict(delivery.reply_id, target, error)
        if target is not None:
            targets.setdefault(target, []).append((row, _values(item, target, now)))
            moves.append(transition(REPLY, row, now, target, "receipt stored" if item.said is None else item.said))
    for target, pairs in targets.items():
        held, each = [row for row, _ in pairs], [values for _, values in pairs]
        leases.write(room.connection, room.leased, held, target, {"owner": None, "lease_until": None}, each)
    room.journal.record(moves)
    return said


def _target(row: Any, item: Sent) -> str:
    if item.delivered:
        return states.SENT
    return states.DEAD if item.permanent or row.attempts >= row.max_attempts else states.PENDING


def _values(item: Sent, target: str, now: float) -> dict[str, Any]:
    when = {"available_at": now + item.wait_seconds} if target == states.PENDING else {"settled_at": now}
    return {"last_error": item.said, **when}


def _composed(room: OutboxRepository, items: Sequence[Numbered]) -> dict[int, Verdict]:
    sent = [item for _, item in items]
    values: dict[str, Any] = {
        "p_key": [item.delivery.reply_id for item in sent],
        "p_owner": [item.delivery.owner for item in sent],
        "p_fence": [item.delivery.fence for item in sent],
        "p_delivered": [item.delivered for item in sent],
        "p_permanent": [item.permanent for item in sent],
        "p_said": [item.said for item in sent],
        "p_wait_seconds": [item.wait_seconds for item in sent],
    }
    arguments = (room.tables, room.leased, room.hand, room.backend)
    found = rows(room.connection, settle_statement, arguments, values | room.hand_time())
    by_order = {row.ord: row for row in found}
    return {index: _verdict(room, item, by_order.get(order)) for order, (index, item) in enumerate(items, 1)}


def _verdict(room: OutboxRepository, item: Sent, row: Any) -> Verdict:
    delivery = item.delivery
    if row is not None and row.moved:
        return Verdict(delivery.reply_id, row.target)
    named = (delivery.reply_id, delivery.owner, delivery.fence)
    error = leases.broken(row, room.leased, *named, 0.0 if row is None else row.read_at)
    if error is None:
        raise StatementFailed(leases.UNCHANGED)
    return Verdict(delivery.reply_id, None, error)


def refusal() -> InvalidEnvelope:
    """For something that is no delivery."""
    return InvalidEnvelope("a Delivery is wanted, as claim_reply returned it.", field="delivery")
