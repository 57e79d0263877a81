"""The receipts: which replies a receiver has stored, and the effect of each, in one transaction."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from recovery import clock
from recovery.accepting import checked_text, is_text_key
from recovery.backend import Backend, change, param, rows
from recovery.canonical import content_hash
from recovery.errors import InvalidEnvelope, Misconfigured, PayloadCollision, StatementFailed
from recovery.messages import Receipt
from recovery.repositories.base import Repository
from recovery.schema import Tables

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
        if not self._insert(reply_id, payload):
            return Receipt(STORED, reply_id, duplicate=True)
        if apply is not None:
            _finished(apply(self.connection, reply_id, payload))
        return Receipt(STORED, reply_id, duplicate=False)

    def _insert(self, reply_id: str, payload: str) -> bool:
        """Store the receipt with the mark of its effect; False where it is stored already."""
        mark = content_hash(payload)
        values: dict[str, Any] = {"p_reply_id": reply_id, "p_content_hash": mark, "p_payload": payload}
        values |= self.hand_time()
        if rows(self.connection, _accept, (self.tables, self.hand, self.backend), values):
            if not self.backend.composes:
                marked = {"p_reply_id": reply_id, "p_now": values["p_now"]}
                change(self.connection, _mark, (self.tables,), marked)
            return True
        known = rows(self.connection, _known, (self.tables, self.backend), {"p_reply_id": reply_id})
        if not known:
            raise StatementFailed("the receipt vanished while it was compared; send the reply again.")
        if known[0].content_hash != mark:
            raise PayloadCollision(reply_id)
        return False

    def seen(self, reply_id: str) -> bool:
        """Whether a receipt for this reply is stored."""
        if not is_text_key(reply_id):
            return False
        return bool(rows(self.connection, _known, (self.tables, self.backend), {"p_reply_id": reply_id}))

    def effect_count(self) -> int:
        """How many effects were applied."""
        return int(self.connection.execute(sa.select(sa.func.count()).select_from(self.tables.effects)).scalar_one())


def _accept(tables: Tables, hand: clock.Hand, at: Backend) -> Any:
    """Store a receipt; where the backend composes, with the mark of its effect."""
    receipts, effects = tables.receipts, tables.effects
    now = clock.expression(at, hand)
    given = {name: param(name, sa.Text()) for name in ("reply_id", "content_hash", "payload")}
    insert = at.insert_new(receipts, "reply_id").values(**given, received_at=now).inline()
    returning = insert.returning(receipts.c.reply_id, receipts.c.received_at)
    if not at.composes:
        return returning
    new = returning.cte("new")
    marked = sa.insert(effects).from_select(["reply_id", "applied_at"], sa.select(new.c.reply_id, new.c.received_at))
    return sa.select(new).add_cte(marked.inline().cte("marked"))


def _mark(tables: Tables) -> sa.Insert:
    return sa.insert(tables.effects).values(reply_id=param("reply_id", sa.Text()), applied_at=param("now")).inline()


def _known(tables: Tables, at: Backend) -> sa.Select[Any]:
    receipts = tables.receipts
    return sa.select(receipts.c.content_hash, at.confirming.label("confirmed")).where(
        receipts.c.reply_id == param("reply_id", sa.Text())
    )


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
