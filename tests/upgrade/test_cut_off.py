"""The server ends the session of an upgrade at each of its statements, or the answer to its COMMIT is lost."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import psycopg
import pytest
import sqlalchemy as sa

from recovery import CommitUnknown, RecoveryError, Unavailable, migrate
from recovery.schema import VERSION
from recovery.testing.reading import plain
from tests.plugins.pg_server import PostgresServer
from tests.upgrade.catalogs import seen
from tests.upgrade.interrupting import Upgrade, state
from tests.upgrade.older import fill
from tests.upgrade.statements import COMMIT, Watch, watched

END_ALL = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


@pytest.fixture(params=["empty", "filled"])
def upgrade(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Upgrade:
    """The way up on a server, from an empty database and from the older step."""

    def make() -> str:
        template = postgres_server.template_database("filled", fill)
        url = postgres_server.create_database(template if request.param == "filled" else None)
        request.addfinalizer(functools.partial(postgres_server.drop_database, url))
        return url

    return Upgrade(make)


def ended_at(server: PostgresServer, url: str, point: int) -> RecoveryError | None:
    """Upgrade a database whose sessions the server ends at a point, and return what was raised."""
    name = sa.make_url(url).database

    def act(reached: int) -> None:
        if reached == point:
            with psycopg.connect(plain(sa.make_url(server.admin_url)), autocommit=True) as admin:
                admin.execute(END_ALL, [name])

    with watched(Watch(act)):
        try:
            migrate(url)
        except RecoveryError as error:
            return error
    return None


def test_ended_at_every_statement(
    upgrade: Upgrade, postgres_server: PostgresServer, tell: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    """Wherever its session ends, an upgrade is Unavailable, or unknown from COMMIT on; the database is whole."""
    found: dict[int, Any] = {}
    met: list[str] = []
    points = upgrade.points()
    for point in points:
        url = upgrade.make()
        error = ended_at(postgres_server, url, point)
        met.append(type(error).__name__)
        wrongs = upgrade.wrongs(url, point)
        if error is None and point <= 2 * upgrade.commit:
            wrongs.append("it returned, and its session had ended before COMMIT")
        # What ended after the last statement is heard of at COMMIT, which cannot be told from an end during it.
        allowed = (Unavailable, CommitUnknown) if point >= 2 * upgrade.commit - 1 else (Unavailable,)
        if error is not None and type(error) not in allowed:
            wrongs.append(f"it raised {type(error).__name__}")
        if wrongs:
            found[point] = wrongs
    assert {} == found
    counts = ", ".join(f"{name} {count}" for name, count in Counter(met).items()).replace("NoneType", "returned")
    tell(f"upgrades ended by the server: {request.node.callspec.id}: {len(points)} points, {counts}, all whole")


@contextlib.contextmanager
def answers_lost() -> Iterator[None]:
    """While this lasts, the answer to a COMMIT that an upgrade sends is lost: it is done, and nobody was told."""
    real = psycopg.Connection.commit

    def commit(line: Any) -> None:
        real(line)
        line.close()
        raise psycopg.OperationalError("the line broke")

    with mock.patch.object(psycopg.Connection, "commit", commit):
        yield


def version(url: str) -> list[tuple[Any, ...]]:
    """What the database says it is at."""
    with seen(url) as look:
        return look.all("SELECT version_num FROM recovery_version")


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database on a server."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


def test_an_answer_to_commit_that_was_lost(empty: str) -> None:
    """The upgrade is there all the same; asking once more says so, and changes nothing."""
    with answers_lost(), pytest.raises(RecoveryError):
        migrate(empty)
    before = state(empty)
    assert [(VERSION,)] == version(empty)
    assert VERSION == migrate(empty)
    assert before == state(empty)


def test_a_lost_answer_to_commit_is_called_unknown(empty: str) -> None:
    """A connection that is lost during COMMIT is CommitUnknown (section 8), also on the ladder."""
    with answers_lost(), pytest.raises(CommitUnknown):
        migrate(empty)


@pytest.mark.parametrize("upgrade", ["filled"], indirect=True)
def test_what_was_upgraded_is_not_called_unchanged(upgrade: Upgrade, postgres_server: PostgresServer) -> None:
    """Where migrate raises Unavailable nothing was changed, as its docstring says; after COMMIT it may not say so."""
    url = upgrade.make()
    last = max(number for number, said in enumerate(upgrade.sent) if said == COMMIT)
    error = ended_at(postgres_server, url, 2 * last)
    assert (False, [(VERSION,)]) == (isinstance(error, Unavailable), version(url))
