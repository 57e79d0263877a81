"""How a repository's method becomes a verb of a queue: one line each, with its full type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa

from recovery.repositories.base import Repository
from recovery.repositories.settling import SettlingFailed
from recovery.settings import Settings
from recovery.transactions import WRITE, Kind, Work

P = ParamSpec("P")
R = TypeVar("R")
Room = TypeVar("Room", bound=Repository)


class Door(Protocol):
    """Where verbs are called: it has settings, and runs work in a transaction."""

    settings: Settings

    def run(self, work: Work[R], kind: Kind) -> R: ...


class AsyncDoor(Protocol):
    """The same for asyncio."""

    settings: Settings

    async def run(self, work: Work[R], kind: Kind) -> R: ...


def verb(
    room: type[Room], body: Callable[Concatenate[Room, P], R], kind: Kind = WRITE
) -> Callable[Concatenate[Any, P], R]:
    """A method that runs `body` in one transaction, and once more without settling where settling failed."""

    @functools.wraps(body)
    def call(door: Door, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return door.run(_work(door.settings, room, body, args, kwargs), kind)
        except SettlingFailed:
            return door.run(_work(door.settings, room, body, args, {**kwargs, "settle": False}), kind)

    return call


def async_verb(
    room: type[Room], body: Callable[Concatenate[Room, P], R], kind: Kind = WRITE
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """A coroutine method that runs the same `body` in the same way."""

    @functools.wraps(body)
    async def call(door: AsyncDoor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await door.run(_work(door.settings, room, body, args, kwargs), kind)
        except SettlingFailed:
            return await door.run(_work(door.settings, room, body, args, {**kwargs, "settle": False}), kind)

    return call


def _work(
    settings: Settings, room: type[Room], body: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Work[R]:
    kept: dict[str, Any] = {}

    def work(connection: sa.Connection) -> R:
        return body(room(connection, settings, kept), *args, **kwargs)

    return work
