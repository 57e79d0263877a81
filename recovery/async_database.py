"""An engine with what calls it from an event loop. Needs the extra `async`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from recovery import async_transactions as through
from recovery import backend
from recovery.closing import AsyncClosing
from recovery.opening import check, prepared
from recovery.settings import Settings
from recovery.transactions import READ, Kind, Work

R = TypeVar("R")


class Closing(Protocol):
    """Something that can be closed."""

    async def close(self) -> None: ...


T = TypeVar("T", bound=Closing)


class AsyncDatabase(AsyncClosing):
    """An engine with what calls it from an event loop. Checked at the first use."""

    def __init__(self, engine: AsyncEngine | sa.Engine, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.engine = engine
        prepared(engine.sync_engine if isinstance(engine, AsyncEngine) else engine)
        self._transactions, self._caller = through.transactions(engine, self.settings)
        self.quiet = through.quiet(engine)
        self._owned = False
        self._checked = False

    @classmethod
    async def _open(cls, url: str | sa.URL, settings: dict[str, Any]) -> Self:
        parsed = backend.parse(url)
        open_it = backend.open_engine if backend.in_threads(parsed) else backend.open_async_engine
        engine = open_it(parsed, busy_seconds=Settings(**settings).busy_seconds)
        opened = cls(engine, **settings)
        opened._owned = True
        try:
            await opened._check()
        except BaseException:
            await opened.close()
            raise
        return opened

    async def _check(self) -> None:
        def look(connection: sa.Connection) -> None:
            check(connection, self.settings.tables)

        await self._caller.call(self._transactions.run, look, READ)
        self._checked = True

    async def run(self, work: Work[R], kind: Kind) -> R:
        if not self._checked:
            await self._check()
        return await self._caller.call(self._transactions.run, work, kind)

    async def close(self) -> None:
        """Close the engine, if it was opened here, and the threads. Every later verb raises Misconfigured."""
        if self._transactions.closed:
            return
        self._transactions.close()
        if self._owned and isinstance(self.engine, AsyncEngine):
            await self.engine.dispose()
        elif self._owned:
            await self._caller.call(self.engine.dispose)
        self._caller.close()


class Opening(Generic[T]):
    """Something that opens: await it, or enter it with `async with`."""

    def __init__(self, start: Callable[[], Awaitable[T]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, None, T]:
        return self._start().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._start()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._opened.close()
