"""A PostgreSQL server for the time of one run: from the programs on this machine or a wheel, or in a container."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from recovery.testing.torture import server
from recovery.testing.torture.container import contained

from .targets import Target


@contextlib.contextmanager
def embedded() -> Iterator[Target]:
    """A server of our own, which ends with this process however that ends."""
    with server.embedded() as running:
        made = "a wheel" if "celerp" in str(running.programs) else "this machine's programs"
        yield Target(running.url, f"an embedded server from {made}")


@contextlib.contextmanager
def container(image: str) -> Iterator[Target]:
    """A server in a container, through testcontainers and the Docker engine of this machine."""
    with contained(image) as running:
        yield Target(running.url, f"a container from {image}")
