"""Every way to a queue's verbs: the queue, a session and the caller's own transaction, plain and asynchronous."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa

from recovery import AsyncQueue, Queue, open_async_engine, prepare_engine
from tests.plugins.queues import Loop, Plain

WAYS: Final = ("queue", "session", "on", "async queue", "async session", "async on")


class Way:
    """One way to the verbs, called plainly. `end` commits a transaction of the caller's own, and closes everything."""

    def __init__(self, name: str, url: str, **settings: Any) -> None:
        self.name = name
        self._at_the_end = contextlib.ExitStack()
        self.verbs: Any = (
            _asynchronous(name, url, settings, self._at_the_end)
            if name.startswith("async")
            else _plain(name, url, settings, self._at_the_end)
        )

    @property
    def is_bound(self) -> bool:
        """Whether the transaction is the caller's own, where the verbs of several transactions are not to be had."""
        return self.name.endswith("on") and not self.name.endswith("session")

    def end(self) -> None:
        """Commit and close. Does nothing the second time."""
        self._at_the_end.close()


def _plain(name: str, url: str, settings: dict[str, Any], at_the_end: contextlib.ExitStack) -> Any:
    queue = at_the_end.enter_context(Queue.open(url, **settings))
    if name == "queue":
        return queue
    if name == "session":
        return at_the_end.enter_context(queue.session())
    return queue.on(at_the_end.enter_context(queue.engine.begin()))


def _asynchronous(name: str, url: str, settings: dict[str, Any], at_the_end: contextlib.ExitStack) -> Any:
    loop = Loop()
    at_the_end.callback(loop.close)
    queue = loop.run(AsyncQueue.open(url, **settings))
    at_the_end.callback(lambda: loop.run(queue.close()))
    if name == "async queue":
        return Plain(loop, queue)
    if name == "async session":
        session = queue.session()
        at_the_end.callback(lambda: loop.run(session.close()))
        return Plain(loop, session)
    return Plain(loop, queue.on(_begun(loop, url, at_the_end)))


def _begun(loop: Loop, url: str, at_the_end: contextlib.ExitStack) -> Any:
    """A connection of the caller's own, in a transaction that is committed at the end."""
    engine = asynchronous_engine(url)
    at_the_end.callback(lambda: loop.run(engine.dispose()))
    connection = loop.run(engine.connect())
    at_the_end.callback(lambda: loop.run(connection.close()))
    loop.run(connection.begin())
    at_the_end.callback(lambda: loop.run(connection.commit()))
    return connection


def asynchronous_engine(url: str) -> Any:
    """An asynchronous engine on either database; on SQLite it is the caller's own, prepared."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return open_async_engine(url)
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(parsed.set(drivername="sqlite+aiosqlite"))
    prepare_engine(engine.sync_engine)
    return engine


def raised(call: Callable[[], object]) -> Exception | None:
    """What a call raised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test says whether it was right
        return error
    return None
