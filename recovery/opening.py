"""Opening a database: an engine that fits, a schema that fits, and nothing changed by looking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from recovery import async_transactions as through
from recovery import backend
from recovery.errors import Misconfigured, SchemaMismatch
from recovery.schema import VERSION, Tables
from recovery.settings import Settings
from recovery.transactions import READ, Kind, Work

R = TypeVar("R")


class Closing(Protocol):
    """Something that can be closed."""

    async def close(self) -> None: ...


T = TypeVar("T", bound=Closing)


def check(connection: sa.Connection, tables: Tables) -> None:
    """Raise SchemaMismatch or Misconfigured where this release cannot work with the database. Reads only."""
    found = version(connection, tables)
    if found is None:
        raise SchemaMismatch("the tables are missing; run: recovery migrate")
    if found < VERSION:
        raise SchemaMismatch(f"the tables are at {found}, and this release needs {VERSION}; run: recovery migrate")
    if found > VERSION:
        raise SchemaMismatch(f"the tables are at {found}, and this release only knows {VERSION}; upgrade recovery.")
    backend.of(connection).check_database(connection)


def version(connection: sa.Connection, tables: Tables) -> str | None:
    """The revision that the database is at; None where there is none."""
    if not sa.inspect(connection).has_table(tables.version.name):
        return None
    found: str | None = connection.execute(sa.select(tables.version.c.version_num)).scalar_one_or_none()
    return found


def prepared(engine: sa.Engine) -> sa.Engine:
    """The engine, if recovery can work with it. Raises Misconfigured."""
    given: object = engine
    if not isinstance(given, sa.Engine) or not backend.is_prepared(engine):
        raise Misconfigured("use an engine of open_engine(url), or give yours to prepare_engine before it connects.")
    backend.of(engine).check_engine(engine)
    return engine


class AsyncDatabase:
    """An engine with what calls it from an event loop. Checked at the first use."""

    def __init__(self, engine: AsyncEngine | sa.Engine, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.engine = engine
        prepared(engine.sync_engine if isinstance(engine, AsyncEngine) else engine)
        self._transactions, self._caller = through.transactions(engine, self.settings)
        self._owned = False
        self._checked = False

    @classmethod
    async def _open(cls, url: str | sa.URL, settings: dict[str, Any]) -> Self:
        parsed = backend.parse(url)
        engine = backend.open_engine(parsed) if backend.in_threads(parsed) else backend.open_async_engine(parsed)
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
        """Close the engine, if it was opened here, and the threads."""
        if self._owned and isinstance(self.engine, AsyncEngine):
            await self.engine.dispose()
        elif self._owned:
            await self._caller.call(self.engine.dispose)
        self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


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
