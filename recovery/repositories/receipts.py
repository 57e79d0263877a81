"""The receipts: which replies a receiver has stored, and the effect of each, in one transaction."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import sqlalchemy as sa

from recovery import clock
from recovery.accepting import checked_text, is_text_key
from recovery.canonical import content_hash
from recovery.errors import InvalidEnvelope, Misconfigured, PayloadCollision, StatementFailed
from recovery.messages import Receipt
from recovery.repositories.base import Repository

Effect = Callable[[sa.Connection, str, str], object]
"""`apply(connection, reply_id, payload)`: what the receiver does because of a reply, on the receipt's connection."""

STORED = "stored"
REPLY_BYTES_MAX = 64 * 1024 * 1024 + 4096
"""The largest reply that a queue can be told to allow, with what stands around its result."""


class ReceiptRepository(Repository):
    """Stores receipts and applies effects, once for each reply id."""

    def accept(self, reply_id: str, payload: str, apply: Effect | None = None) -> Receipt:
        """Store the receipt of a reply and apply its effect; the same reply again is a duplicate and applies nothing.

        Raises PayloadCollision where the same id is stored with different content. `apply` writes through the
        connection it is given, and neither commits nor closes it; what it raises rolls the receipt back.
        """
        checked_text(reply_id, "reply_id")
        _checked_payload(payload)
        _checked_effect(apply)
        received_at = self._insert(reply_id, payload)
        if received_at is None:
            return Receipt(STORED, reply_id, duplicate=True)
        self.connection.execute(sa.insert(self.tables.effects).values(reply_id=reply_id, applied_at=received_at))
        if apply is not None:
            _finished(apply(self.connection, reply_id, payload))
        return Receipt(STORED, reply_id, duplicate=False)

    def _insert(self, reply_id: str, payload: str) -> float | None:
        receipts = self.tables.receipts
        mark = content_hash(payload)
        now = clock.now(self.connection, self.settings.clock)
        values = {"reply_id": reply_id, "content_hash": mark, "payload": payload, "received_at": now}
        new = self.backend.insert_new(receipts, "reply_id").values(values).returning(receipts.c.received_at)
        row = self.connection.execute(new).one_or_none()
        if row is not None:
            return float(row.received_at)
        stored = sa.select(receipts.c.content_hash).where(receipts.c.reply_id == reply_id)
        known = self.connection.execute(stored).scalar_one_or_none()
        if known is None:
            raise StatementFailed("the receipt vanished while it was compared; send the reply again.")
        if known != mark:
            raise PayloadCollision(reply_id)
        return None

    def seen(self, reply_id: str) -> bool:
        """Whether a receipt for this reply is stored."""
        if not is_text_key(reply_id):
            return False
        receipts = self.tables.receipts
        stored = sa.select(receipts.c.reply_id).where(receipts.c.reply_id == reply_id)
        return self.connection.execute(stored).one_or_none() is not None

    def effect_count(self) -> int:
        """How many effects were applied."""
        return int(self.connection.execute(sa.select(sa.func.count()).select_from(self.tables.effects)).scalar_one())


def _checked_payload(payload: object) -> None:
    if type(payload) is not str:
        raise InvalidEnvelope("a reply's payload is the text that the outbox stored.", field="payload")
    if len(payload) > REPLY_BYTES_MAX:
        raise InvalidEnvelope("the payload is too large.", field="payload", limit=REPLY_BYTES_MAX)
    if "\x00" in payload or any("\ud800" <= character <= "\udfff" for character in payload):
        raise InvalidEnvelope("the payload holds a NUL or a lone surrogate, which is not JSON text.", field="payload")


def _checked_effect(apply: object) -> None:
    if apply is not None and (not callable(apply) or inspect.iscoroutinefunction(apply)):
        raise Misconfigured("apply must be a plain function: it runs on the receipt's own connection.")


def _finished(answer: object) -> None:
    # A coroutine that nobody awaits would be an effect that silently never happens.
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise Misconfigured("apply returned an awaitable; it must do its work before it returns.")
