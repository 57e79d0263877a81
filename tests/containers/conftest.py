"""In this folder the server is a container: every fixture that asks for `postgres_server` gets it."""

from __future__ import annotations

import pytest

from tests.plugins.pg_server import PostgresServer
from tests.plugins.postgres import note_server


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this folder, so that none is run by an ordinary `pytest`."""
    item.add_marker(pytest.mark.container)


@pytest.fixture(scope="session", params=["postgresql"])
def backend(request: pytest.FixtureRequest) -> str:
    """PostgreSQL alone: SQLite needs no container."""
    return str(request.param)


@pytest.fixture(scope="session")
def postgres_server(postgres_container: PostgresServer, pytestconfig: pytest.Config) -> PostgresServer:
    """The container, under the name by which the suite knows its server."""
    note_server(pytestconfig, postgres_container)
    return postgres_container
