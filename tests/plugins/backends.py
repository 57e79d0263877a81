"""Fixtures: on which backends a test runs, and an empty database on each."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.plugins.pg_server import PostgresServer

BACKENDS = ("sqlite", "postgresql")
VARIABLE = "RECOVERY_TEST_BACKENDS"
NEEDS_A_SERVER = {"postgres_server", "private_postgres"}


def backends_wanted(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The backends that the environment asks for, both where it is silent."""
    asked = [name.strip() for name in environment.get(VARIABLE, "").split(",") if name.strip()]
    unknown = [name for name in asked if name not in BACKENDS]
    if unknown:
        raise pytest.UsageError(f"{VARIABLE} names {', '.join(unknown)}; it takes {' and '.join(BACKENDS)}.")
    return tuple(name for name in BACKENDS if not asked or name in asked)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and count as deselected, what needs a server when none was asked for."""
    if "postgresql" in backends_wanted():
        return
    left_out = [item for item in items if NEEDS_A_SERVER & set(getattr(item, "fixturenames", ()))]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session", params=backends_wanted())
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend; the test runs once with each. To choose a database by it, not to decide what is true."""
    return str(request.param)


@pytest.fixture
def new_database(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes empty databases: each call returns the URL of another one, and all are gone after the test.

    For SQLite the file does not exist yet.
    """
    if backend == "sqlite":
        numbers = itertools.count(1)
        yield lambda: f"sqlite:///{tmp_path}/recovery-{next(numbers)}.db"
        return
    # Asked for only here, so that a run on SQLite alone starts no server.
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with contextlib.ExitStack() as at_the_end:

        def make() -> str:
            url = server.create_database()
            at_the_end.callback(server.drop_database, url)
            return url

        yield make


@pytest.fixture
def empty_url(new_database: Callable[[], str]) -> str:
    """The URL of an empty database of this test's own."""
    return new_database()
