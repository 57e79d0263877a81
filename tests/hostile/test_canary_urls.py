"""The password in a URL is in no log, no error and no `repr`, whatever is wrong with the rest of the URL."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import (
    AsyncQueue,
    AsyncReceiver,
    Queue,
    Receiver,
    RecoveryError,
    migrate,
    open_async_engine,
    open_engine,
)
from recovery.migrate import migration_sql
from tests.hostile.canaries import Canaries, Watch, logged, reprs, shown
from tests.hostile.driving import AUTH, filled, message, server_place
from tests.hostile.refused_values import SENDER

UNREADABLE = {
    "another database": "mysql://{user}:{password}@host/db",
    "another driver": "postgresql+psycopg2://{user}:{password}@host/db",
    "an old scheme": "postgres://{user}:{password}@host/db",
    "two ports": "postgresql://{user}:{password}@host:1:2/db",
    "one slash": "postgresql:/{user}:{password}@host/db",
    "no scheme": "{user}:{password}@host/db",
    "a scheme that is a secret": "{password}://host/db",
    "a driver that is a secret": "postgresql+{password}://host/db",
    "an option of a file": "sqlite:///missing.db?password={password}",
    "an option that is a secret": "sqlite:///missing.db?{password}=1",
}
WRONG = {
    "password": lambda url, canaries: url.set(password=canaries.password + "-not"),
    "user": lambda url, canaries: url.set(username=canaries.user + "_not"),
    "database": lambda url, canaries: url.set(database="nowhere_at_all"),
    "port": lambda url, canaries: url.set(host="127.0.0.1", port=1),
    "unknown option": lambda url, canaries: url.update_query_dict({"nonsense": canaries.option}),
    "two passwords": lambda url, canaries: url.update_query_dict({"passfile": f"/nowhere/{canaries.option}"}).set(
        password="wrong"
    ),
}
"""What is wrong with the URL of a server that is there."""


async def opened(kind, url):
    """Open an asynchronous one, and close it."""
    async with kind.open(url, busy_seconds=0.1) as one:
        return repr(one)


def doors(url):
    """Everything that takes a URL and connects."""
    return {
        "Queue": lambda: Queue.open(url, busy_seconds=0.1).close(),
        "Receiver": lambda: Receiver.open(url, busy_seconds=0.1).close(),
        "AsyncQueue": lambda: asyncio.run(opened(AsyncQueue, url)),
        "AsyncReceiver": lambda: asyncio.run(opened(AsyncReceiver, url)),
        "migrate": partial(migrate, url),
    }


def tried(calls):
    """The errors of all, logged as a program logs them; every one must fail."""
    errors = {}
    for name, call in calls.items():
        try:
            call()
        except RecoveryError as error:
            logged(error)
            errors[name] = error
    return errors


def leaked(canaries, watch, errors, things=()):
    """Which canaries were let out. The server names the role that it refuses: that is no secret, and stays its word."""
    texts = [*watch.texts, *reprs(things)]
    for error in errors:
        texts += shown(error)
        assert canaries.in_what([str(error)]) == set()
    return canaries.in_what(texts) - {"user"}


@pytest.mark.parametrize("form", [*UNREADABLE.values()], ids=[*UNREADABLE])
def test_a_url_that_is_refused(tmp_path, monkeypatch, form):
    """Each is Misconfigured at every door, before anything is connected to or made."""
    monkeypatch.chdir(tmp_path)
    canaries = Canaries()
    url = form.format_map(vars(canaries))
    calls = doors(url) | {
        "open_engine": lambda: open_engine(url),
        "open_async_engine": lambda: open_async_engine(url),
        "sql": lambda: migration_sql(url),
    }
    with Watch() as watch:
        errors = tried(calls)
    assert set(calls) == set(errors)
    assert {"Misconfigured"} == {type(error).__name__ for error in errors.values()}
    assert set() == leaked(canaries, watch, errors.values())
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", WRONG)
def test_a_server_that_refuses(postgres_server, wrong):
    """Wrong credentials, a database or a server that is not there, an option that nobody knows."""
    with server_place(postgres_server) as place, Watch() as watch:
        url = WRONG[wrong](sa.make_url(place.url), place.canaries).render_as_string(hide_password=False)
        errors = tried(doors(url))
    assert set(doors(url)) == set(errors)
    assert set() == leaked(place.canaries, watch, errors.values())


def test_what_is_opened_does_not_show_it(postgres_server):
    """No object that the library hands out shows the password of its URL, nor do their settings and connections."""
    with contextlib.ExitStack() as at_the_end:
        place = at_the_end.enter_context(server_place(postgres_server))
        watch = at_the_end.enter_context(Watch())
        queue = at_the_end.enter_context(Queue.open(place.url, allowed_sources={SENDER}))
        receiver = at_the_end.enter_context(Receiver.open(sa.make_url(place.url)))
        session = at_the_end.enter_context(queue.session())
        engines: list[Any] = [open_engine(place.url), open_async_engine(place.url)]
        held = filled(queue, place.canaries)
        receiver.accept(held.delivery.reply_id, held.delivery.payload)
        connection = session.connection()
        with connection.begin():
            bound = queue.on(connection)
            bound.receive(message(place.canaries), AUTH)
            things = [queue, receiver, session, bound, connection, connection.connection, queue.engine.pool]
        things += [queue.settings, receiver.settings, queue.engine, queue.engine.url, receiver.engine, *engines]
        texts = [str(vars(one)) for one in things if hasattr(one, "__dict__")]
        texts += [queue.engine.pool.status(), str(queue.engine.url), queue.engine.url.render_as_string()]
        for engine in engines:
            getattr(engine, "sync_engine", engine).dispose()
    assert {"Queue", "Receiver", "Engine", "AsyncEngine"} <= {type(one).__name__ for one in things}
    assert set() == place.canaries.in_what([*texts, *watch.texts, *reprs(things)]) - {"user"}


def test_the_statements_of_a_migration(postgres_server):
    """`migrate` logs what it does, without the URL, and prints statements without it."""
    with server_place(postgres_server) as place, Watch() as watch:
        migrate(place.url, table_prefix="other_")
        text = migration_sql(place.url)
    assert any("alembic" in heard for heard in watch.texts)
    assert set() == place.canaries.in_what([text, *watch.texts]) - {"user"}
