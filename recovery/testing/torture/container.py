"""A PostgreSQL server in a container of its own for one run: it may be killed with all that is in it, and started."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa

from recovery.errors import Misconfigured
from recovery.testing.reading import plain

IMAGE: Final = "postgres:17"
PORT: Final = 5432
PATIENCE_SECONDS: Final = 120.0


class Container:
    """A running server. `url` leads to its database, and stays the same from one start to the next."""

    def __init__(self, identity: str, url: str) -> None:
        self.url = url
        self._identity = identity

    def start(self) -> None:
        """Start it, and wait until it answers. Raises TimeoutError where it does not within two minutes."""
        import psycopg

        self._own().start()
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                psycopg.connect(plain(sa.make_url(self.url)), connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise TimeoutError("the server in the container does not answer.") from None
                time.sleep(0.05)
            else:
                return

    def crash(self) -> None:
        """Kill it: every process in it is gone at once."""
        self._own().kill()

    def _own(self) -> Any:
        # A client of its own each time: whoever asks may be a process that was forked a moment ago.
        from testcontainers.core.docker_client import DockerClient

        return DockerClient().client.containers.get(self._identity)


@contextlib.contextmanager
def contained(image: str) -> Iterator[Container]:
    """A server from that image, removed at the end. Raises Misconfigured without testcontainers or a Docker engine."""
    try:
        from docker.errors import DockerException
        from testcontainers.community.postgres import PostgresContainer
    except ImportError as error:
        raise Misconfigured("--container needs testcontainers: pip install 'testcontainers>=4.15'") from error
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    with contextlib.ExitStack() as at_the_end:
        try:
            # A port of our choice: one that Docker chose would be another one after a kill.
            running = at_the_end.enter_context(PostgresContainer(image).with_bind_ports(PORT, port))
        except DockerException as error:
            raise Misconfigured(f"--container needs a Docker engine that answers, and this image: {error}") from error
        url = sa.make_url(running.get_connection_url()).set(drivername="postgresql")
        yield Container(running.get_wrapped_container().id, url.render_as_string(hide_password=False))
