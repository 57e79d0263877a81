"""Fixtures of upgrades: databases that an older release made, empty or full of rows, and the ways up from there."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.plugins.pg_server import PostgresServer
from tests.upgrade.interrupting import Upgrade
from tests.upgrade.older import fill
from tests.upgrade.releases import Release
from tests.upgrade.releases import previous as unpacked


class Copies:
    """Makes copies of databases, each of which was prepared only once; they are gone when the run ends."""

    def __init__(self, backend: str, request: pytest.FixtureRequest, at_the_end: contextlib.ExitStack) -> None:
        self._at_the_end = at_the_end
        self._server: PostgresServer | None = None
        if backend == "sqlite":
            self._folder = request.getfixturevalue("tmp_path_factory").mktemp("copies")
            self._numbers = itertools.count(1)
        else:
            self._server = request.getfixturevalue("postgres_server")

    def of(self, key: str, prepare: Callable[[str], object]) -> Callable[[], str]:
        """Makes copies of what `prepare(url)` made: each call returns the URL of another one."""
        if self._server is not None:
            return self._databases(self._server, self._server.template_database(key, prepare))
        first = self._folder / f"{key}.db"
        if not first.exists():
            prepare(f"sqlite:///{first}")

        def make() -> str:
            path = self._folder / f"{next(self._numbers)}.db"
            shutil.copy2(first, path)
            return f"sqlite:///{path}"

        return make

    def _databases(self, server: PostgresServer, template: str) -> Callable[[], str]:
        def make() -> str:
            url = server.create_database(template)
            self._at_the_end.callback(server.drop_database, url)
            return url

        return make


@pytest.fixture(scope="session")
def copies(backend: str, request: pytest.FixtureRequest) -> Iterator[Copies]:
    """Databases that an older release made, again and again."""
    with contextlib.ExitStack() as at_the_end:
        yield Copies(backend, request, at_the_end)


@pytest.fixture(scope="session")
def new_filled(copies: Copies) -> Callable[[], str]:
    """Makes databases at the older step that are full of rows."""
    return copies.of("filled", fill)


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The previous release, unpacked."""
    return unpacked(tmp_path_factory.mktemp("previous"))


@pytest.fixture(scope="session")
def new_old(copies: Copies, previous: Release) -> Callable[[], str]:
    """Makes empty queues that the previous release itself made."""

    def prepare(url: str) -> None:
        assert [] == previous.asked("opening.py", "migrate", url)["migrate"]

    return copies.of("old", prepare)


@pytest.fixture
def old_url(new_old: Callable[[], str]) -> str:
    """The URL of one of them."""
    return new_old()


@pytest.fixture
def new_start(backend: str, request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes databases to upgrade, empty or filled at the older step, as the test's parameter says."""
    start: Callable[[], str] = request.getfixturevalue({"empty": "new_database", "filled": "new_filled"}[request.param])
    return start


@pytest.fixture
def upgrade(new_start: Callable[[], str]) -> Upgrade:
    """The way up from there."""
    return Upgrade(new_start)
