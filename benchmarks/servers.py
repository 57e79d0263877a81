"""A PostgreSQL server for the time of one run: from the programs on this machine or a wheel, or in a container."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa

from recovery.errors import Misconfigured
from recovery.testing.torture import server

from .targets import Target

IMAGE = "postgres:17"


@contextlib.contextmanager
def embedded() -> Iterator[Target]:
    """A server of our own, which ends with this process however that ends."""
    with server.embedded() as running:
        made = "a wheel" if "celerp" in str(running.programs) else "this machine's programs"
        yield Target(running.url, f"an embedded server from {made}")


@contextlib.contextmanager
def container(image: str) -> Iterator[Target]:
    """A server in a container, through testcontainers and the Docker engine of this machine."""
    try:
        from testcontainers.community.postgres import PostgresContainer
    except ImportError as error:
        raise Misconfigured("--container needs testcontainers: pip install 'testcontainers>=4.15'") from error
    with PostgresContainer(image) as running:
        url = sa.make_url(running.get_connection_url()).set(drivername="postgresql")
        yield Target(url.render_as_string(hide_password=False), f"a container from {image}")
