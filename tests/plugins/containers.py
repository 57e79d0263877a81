"""Fixtures: PostgreSQL in a container, behind the same interface as the server of an ordinary run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from recovery.testing.torture.container import IMAGE
from tests.plugins.pg_server import PostgresServer, normal_url

IMAGE_VARIABLE = "RECOVERY_POSTGRES_IMAGE"


def containers_wanted(config: pytest.Config) -> bool:
    """Whether `-m` speaks of containers."""
    return "container" in config.option.markexpr


def image() -> str:
    """The image that the environment names, else the default."""
    return os.environ.get(IMAGE_VARIABLE) or IMAGE


@pytest.fixture(scope="session")
def postgres_container() -> Iterator[PostgresServer]:
    """A container from RECOVERY_POSTGRES_IMAGE, once per run; without Docker the tests fail with Docker's own words."""
    from testcontainers.community.postgres import PostgresContainer

    with PostgresContainer(image()) as container:
        server = PostgresServer(normal_url(container.get_connection_url()), f"a container from {image()}")
        with server:
            yield server
