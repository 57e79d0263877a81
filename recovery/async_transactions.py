"""Verbs from an event loop: the same bodies, in the same transactions.

PostgreSQL is reached through SQLAlchemy's greenlets; SQLite through a few threads, with one hop for a whole
transaction. A cancelled verb waits for its transaction to end before the cancellation goes on: otherwise the
connection would go back to the pool in the middle of it, and nobody could say whether the work was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from recovery import backend
from recovery.errors import Misconfigured
from recovery.settings import Settings
from recovery.transactions import HeldTransactions, Kind, Savepoints, Transactions, Work, leave_at_fork

R = TypeVar("R")
THREADS: Final = 4


class AsyncRunner(Protocol):
    """Runs something that blocks without blocking the loop."""

    async def call(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call a blocking function and wait for it to end, also when cancelled."""
        ...

    def close(self) -> None:
        """Give up what is needed for calling."""
        ...


class InGreenlets:
    """For an engine of `create_async_engine`."""

    async def call(self, function: Callable[..., R], *arguments: Any) -> R:
        return await to_its_end(greenlet_spawn(function, *arguments))

    def close(self) -> None:
        """A greenlet needs nothing."""


class InThreads:
    """For SQLite: a few threads of our own."""

    def __init__(self) -> None:
        self._executor = _threads()
        self._closed = False
        leave_at_fork(self)

    async def call(self, function: Callable[..., R], *arguments: Any) -> R:
        if self._closed:
            raise Misconfigured("it is closed; open another one.")
        loop = asyncio.get_running_loop()
        return await to_its_end(loop.run_in_executor(self._executor, function, *arguments))

    def close(self) -> None:
        """End the threads."""
        self._closed = True
        self._executor.shutdown(wait=True)

    def leave_parent(self) -> None:
        """In a child process, where the parent's threads do not run: have others."""
        self._executor = _threads()


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="recovery")


class AsyncSavepoints:
    """Verbs inside a caller's transaction on an AsyncConnection, each in a SAVEPOINT."""

    def __init__(self, connection: AsyncConnection, settings: Settings) -> None:
        if not isinstance(connection, AsyncConnection):
            raise Misconfigured("on() of an AsyncQueue wants an AsyncConnection.")
        if connection.sync_connection is None:
            raise Misconfigured("begin a transaction on the connection first; the verbs live or die with it.")
        self._savepoints = Savepoints(connection.sync_connection, settings.tables.fence_floor)

    async def run(self, work: Work[R], kind: Kind) -> R:
        """Do the work in a SAVEPOINT; a thread or greenlet hop for each statement is its price."""
        return await to_its_end(greenlet_spawn(self._savepoints.run, work, kind))


def pause(seconds: float) -> None:
    """Sleep from inside a greenlet without blocking the loop."""
    await_only(asyncio.sleep(seconds))


def transactions(engine: AsyncEngine | sa.Engine, settings: Settings) -> tuple[Transactions, AsyncRunner]:
    """What runs verbs for this engine, and how it is called from a loop."""
    if isinstance(engine, AsyncEngine):
        if backend.of(engine.sync_engine).in_threads:
            raise Misconfigured("give AsyncQueue a plain engine on SQLite; it works through threads of its own.")
        return Transactions(engine.sync_engine, settings.bounds, pause), InGreenlets()
    if not backend.of(engine).in_threads:
        raise Misconfigured("give AsyncQueue an AsyncEngine on PostgreSQL: open_async_engine(url).")
    return Transactions(engine, settings.bounds), InThreads()


def quiet(engine: AsyncEngine | sa.Engine) -> set[object] | None:
    """Where verbs that found nothing are noted, if the backend has one writer at a time."""
    found = backend.of(engine.sync_engine if isinstance(engine, AsyncEngine) else engine)
    return set() if found.one_writer else None


def async_connection(engine: AsyncEngine | sa.Engine, held: HeldTransactions) -> AsyncConnection:
    """The held connection as its owner may use it. Only where connections are asynchronous."""
    if not isinstance(engine, AsyncEngine):
        raise Misconfigured("on SQLite an asynchronous session's connection lives in a thread; it cannot be lent.")
    return AsyncConnection(engine, held.connection())


async def to_its_end(work: Awaitable[R]) -> R:
    """Await `work`, and if cancelled meanwhile, wait for it to end before the cancellation goes on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # Looked at, so that the loop does not report it as forgotten.
        raise cancelled
    return task.result()


async def in_a_thread(function: Callable[..., R], *arguments: Any) -> R:
    """Call something foreign that may block, in a thread of the loop's own."""
    return await to_its_end(asyncio.to_thread(function, *arguments))
