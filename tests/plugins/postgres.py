"""Fixtures: the PostgreSQL server of this run, and one to break."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.plugins.backends import backends_wanted
from tests.plugins.containers import containers_wanted, image
from tests.plugins.pg_binaries import NoPostgres
from tests.plugins.pg_server import OwnServer, PostgresServer, intended_source, obtain_postgres, start_any
from tests.plugins.telling import told

Server = TypeVar("Server", bound=PostgresServer)


def pytest_report_header(config: pytest.Config) -> str:
    """Where the server will come from; nothing is started for this line."""
    if containers_wanted(config):
        return f"PostgreSQL, if a test needs it: a container from {image()}"
    if "postgresql" not in backends_wanted():
        return "PostgreSQL: not asked for (RECOVERY_TEST_BACKENDS)"
    return f"PostgreSQL, if a test needs it: {intended_source()}"


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """The PostgreSQL server of this run; without one the test fails and says how to get one."""
    with had_or_failed(obtain_postgres) as server:
        note_server(pytestconfig, server)
        yield server


@pytest.fixture(scope="module")
def private_postgres() -> Iterator[OwnServer]:
    """A server with fsync for the tests of one module, which may stop, crash and start it."""
    with had_or_failed(functools.partial(start_any, durable=True)) as server:
        yield server


def had_or_failed(obtain: Callable[[], Server]) -> Server:
    """What `obtain` returns; where there is none, its sentence alone fails the test, with no traceback around it."""
    try:
        return obtain()
    except NoPostgres as error:
        sentence = str(error)
    pytest.fail(sentence, pytrace=False)


def note_server(config: pytest.Config, server: PostgresServer) -> None:
    """Tell at the end of the run what was really used, since the first choice may not have started."""
    told(config).append(f"PostgreSQL of this run: {server.version()}, {server.source}")
