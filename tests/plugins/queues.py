"""Fixtures: a migrated database on each backend, and a queue and a receiver behind each door."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import (
    AsyncQueue,
    AsyncReceiver,
    AuthContext,
    Envelope,
    ManualClock,
    Queue,
    Receiver,
    migrate,
    open_engine,
)
from recovery.schema import tables
from tests.plugins.pg_server import PostgresServer

AUTH = AuthContext("agent-a")
AUTH_B = AuthContext("agent-b")
SOURCES = frozenset({"agent-a", "agent-b"})
TABLES = ("inbox", "tasks", "outbox", "receipts", "effects", "journal", "fence_floor")
Contents = dict[str, list[dict[str, Any]]]


def envelope(message_id: str = "m-1", **changes: Any) -> Envelope:
    """A good envelope from agent-a, with what a test wants to be different."""
    values: dict[str, Any] = {"sender": "agent-a", "payload": {"n": 1}, "deadline": 2000.0}
    return Envelope(message_id=message_id, **(values | changes))


class Loop:
    """An event loop in a thread of its own, which runs coroutines to their end for whoever asks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        async def whole() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(whole(), self._loop).result(timeout=60)

    def close(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=60)
        self._loop.close()


class Plain:
    """An asynchronous queue or receiver with verbs that are called like the synchronous ones."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self.loop, self.inner = loop, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(arg.inner if isinstance(arg, Plain) else arg for arg in args)
            answer = found(*args, **kwargs)
            return self.loop.run(answer) if inspect.isawaitable(answer) else answer

        return call


class Door:
    """One way in: it opens queues and receivers, and closes them after the test."""

    def __init__(self, name: str, at_the_end: contextlib.ExitStack) -> None:
        self.name, self._at_the_end = name, at_the_end
        self._loop: Loop | None = None

    def queue(self, url: str, **settings: Any) -> Any:
        """An open queue."""
        return self._opened(Queue, AsyncQueue, url, settings)

    def receiver(self, url: str, **settings: Any) -> Any:
        """An open receiver."""
        return self._opened(Receiver, AsyncReceiver, url, settings)

    def _opened(self, plain: Any, asynchronous: Any, url: str, settings: dict[str, Any]) -> Any:
        if self.name == "sync":
            opened = plain.open(url, **settings)
        else:
            if self._loop is None:
                self._loop = Loop()
                self._at_the_end.callback(self._loop.close)
            opened = Plain(self._loop, self._loop.run(asynchronous.open(url, **settings)))
        self._at_the_end.callback(opened.close)
        return opened


class Stored:
    """Looks at the tables from outside, and changes them where a test needs damage."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)

    def contents(self) -> Contents:
        """Every row of every table, cell by cell."""
        with self.engine.connect() as connection:
            return {name: self._rows(connection, name) for name in TABLES}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Every row of one table."""
        return self.contents()[name]

    def _rows(self, connection: sa.Connection, name: str) -> list[dict[str, Any]]:
        table = getattr(tables(), name)
        return [dict(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()]


@pytest.fixture
def new_migrated(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes migrated databases: each call returns the URL of another one."""
    with contextlib.ExitStack() as at_the_end:
        if backend == "sqlite":
            make_empty = request.getfixturevalue("new_database")

            def make() -> str:
                url = str(make_empty())
                migrate(url)
                return url
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            template = server.template_database("migrated", migrate)

            def make() -> str:
                url = server.create_database(template)
                at_the_end.callback(server.drop_database, url)
                return url

        yield make


@pytest.fixture
def database_url(new_migrated: Callable[[], str]) -> str:
    """The URL of a migrated database of this test's own."""
    return new_migrated()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at 1000."""
    return ManualClock(1000.0)


@pytest.fixture(params=("sync", "async"))
def door(request: pytest.FixtureRequest, database_url: str) -> Iterator[Door]:
    """The synchronous and the asynchronous way in; what was opened is closed before the database goes."""
    with contextlib.ExitStack() as at_the_end:
        yield Door(request.param, at_the_end)


@pytest.fixture
def queue(door: Door, database_url: str, clock: ManualClock) -> Any:
    """A queue with agent-a and agent-b allowed, a fixed backoff of 2 s and the manual clock."""
    return door.queue(database_url, allowed_sources=SOURCES, backoff=2.0, clock=clock)


@pytest.fixture
def receiver(door: Door, database_url: str, clock: ManualClock) -> Any:
    """A receiver in the same database."""
    return door.receiver(database_url, clock=clock)


@pytest.fixture
def stored(database_url: str) -> Iterator[Stored]:
    """The tables, seen from outside."""
    seen = Stored(database_url)
    yield seen
    seen.engine.dispose()
