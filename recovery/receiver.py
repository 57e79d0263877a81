"""The receiving side: each reply stored once, its effect applied once, in one transaction. It needs no queue."""

from __future__ import annotations

from typing import Any, Self, TypeVar

import sqlalchemy as sa

from recovery import backend
from recovery.closing import Closing
from recovery.opening import check, prepared
from recovery.repositories import ReceiptRepository
from recovery.settings import Settings
from recovery.transactions import EFFECT, READ, Kind, Transactions, Work
from recovery.verbs import verb

R = TypeVar("R")


class Receiver(Closing):
    """Stores receipts and applies effects. Safe to share between threads."""

    def __init__(self, engine: sa.Engine, **settings: Any) -> None:
        """Use an engine of `open_engine(url)`, or one that went through `prepare_engine`. The caller disposes of it."""
        self.settings = Settings(**settings)
        self.engine = prepared(engine)
        self._transactions = Transactions(engine, self.settings.bounds)
        self._owned = False
        self.run(lambda connection: check(connection, self.settings.tables), READ)

    @classmethod
    def open(cls, url: str | sa.URL, **settings: Any) -> Self:
        """Open a receiver's database by its URL; a context manager that closes it.

        Settings: `clock`, `busy_seconds`, `table_prefix`. Raises Misconfigured, SchemaMismatch or Unavailable.
        """
        engine = backend.open_engine(url, busy_seconds=Settings(**settings).busy_seconds)
        try:
            receiver = cls(engine, **settings)
        except BaseException:
            engine.dispose()
            raise
        receiver._owned = True
        return receiver

    def run(self, work: Work[R], kind: Kind) -> R:
        return self._transactions.run(work, kind)

    accept = verb(ReceiptRepository, ReceiptRepository.accept, EFFECT)
    seen = verb(ReceiptRepository, ReceiptRepository.seen, READ)
    effect_count = verb(ReceiptRepository, ReceiptRepository.effect_count, READ)

    def close(self) -> None:
        """Close the engine, if this receiver opened it. Every later verb raises Misconfigured."""
        self._transactions.close()
        if self._owned:
            self.engine.dispose()
