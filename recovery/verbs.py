"""How a repository's method becomes a verb of a queue: one line each, with its full type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa

from recovery.repositories.base import Repository
from recovery.repositories.settling import SettlingFailed
from recovery.settings import Settings
from recovery.transactions import READ, WRITE, Kind, Work

P = ParamSpec("P")
R = TypeVar("R")
Room = TypeVar("Room", bound=Repository)


class Door(Protocol):
    """Where verbs are called: it has settings, and runs work in a transaction.

    `quiet` are the verbs that found nothing the last time they were called here. Such a one first looks, by reading
    only, whether there is anything to do: a poller of an idle queue then never takes the one write lock. None where
    writers do not exclude each other.
    """

    settings: Settings
    quiet: set[object] | None

    def run(self, work: Work[R], kind: Kind) -> R: ...


class AsyncDoor(Protocol):
    """The same for asyncio."""

    settings: Settings
    quiet: set[object] | None

    async def run(self, work: Work[R], kind: Kind) -> R: ...


def verb(
    room: type[Room],
    body: Callable[Concatenate[Room, P], R],
    kind: Kind = WRITE,
    look: Callable[..., bool] | None = None,
) -> Callable[Concatenate[Any, P], R]:
    """A method that runs `body` in one transaction, and once more without settling where settling failed.

    `look` takes the same arguments and says whether `body` would find anything; see `Door.quiet`.
    """

    @functools.wraps(body)
    def call(door: Door, /, *args: P.args, **kwargs: P.kwargs) -> R:
        settings, quiet = door.settings, None if look is None else door.quiet
        if look is not None and quiet and body in quiet:
            looking = _work(settings, room, look, args, _asked(kwargs))
            if not door.run(looking, READ):
                return _nothing(body)
        try:
            answer = door.run(_work(settings, room, body, args, kwargs), kind)
        except SettlingFailed:
            answer = door.run(_work(settings, room, body, args, {**kwargs, "settle": False}), kind)
        if quiet is not None:
            (quiet.discard if answer else quiet.add)(body)
        return answer

    return call


def async_verb(
    room: type[Room],
    body: Callable[Concatenate[Room, P], R],
    kind: Kind = WRITE,
    look: Callable[..., bool] | None = None,
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """A coroutine method that runs the same `body` in the same way."""

    @functools.wraps(body)
    async def call(door: AsyncDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        settings, quiet = door.settings, None if look is None else door.quiet
        if look is not None and quiet and body in quiet:
            looking = _work(settings, room, look, args, _asked(kwargs))
            if not await door.run(looking, READ):
                return _nothing(body)
        try:
            answer = await door.run(_work(settings, room, body, args, kwargs), kind)
        except SettlingFailed:
            answer = await door.run(_work(settings, room, body, args, {**kwargs, "settle": False}), kind)
        if quiet is not None:
            (quiet.discard if answer else quiet.add)(body)
        return answer

    return call


def _asked(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "settle"}


def _nothing(body: Callable[..., R]) -> R:
    """What a verb that takes work answers where there is none."""
    nothing: Any = [] if body.__name__.endswith("_batch") else None
    answer: R = nothing
    return answer


def _work(
    settings: Settings, room: type[Room], body: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Work[R]:
    kept: dict[str, Any] = {}

    def work(connection: sa.Connection) -> R:
        return body(room(connection, settings, kept), *args, **kwargs)

    return work
