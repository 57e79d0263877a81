"""The receiving side for asyncio: the same verbs from the same bodies. Needs the extra `async`."""

from __future__ import annotations

from typing import Any, Self

import sqlalchemy as sa

from recovery.async_database import AsyncDatabase, Opening
from recovery.repositories import ReceiptRepository
from recovery.transactions import EFFECT, READ
from recovery.verbs import async_verb


class AsyncReceiver(AsyncDatabase):
    """The same for asyncio. `apply` stays a plain function: it runs on the receipt's connection, inside its hop."""

    @classmethod
    def open(cls, url: str | sa.URL, **settings: Any) -> Opening[Self]:
        """Open by URL: `async with AsyncReceiver.open(url) as receiver`, or `await` it and close it yourself."""
        return Opening(lambda: cls._open(url, settings))

    accept = async_verb(ReceiptRepository, ReceiptRepository.accept, EFFECT)
    seen = async_verb(ReceiptRepository, ReceiptRepository.seen, READ)
    effect_count = async_verb(ReceiptRepository, ReceiptRepository.effect_count, READ)
