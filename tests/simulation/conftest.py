"""Fixtures of the simulation: pairs of databases on each backend, and lines for the end of the run."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery import migrate
from tests.plugins.pg_server import PostgresServer
from tests.worlds.machine import Machine
from tests.worlds.named import WORKERS

Pair = tuple[str, str]
"""The URLs of a queue's and of a receiver's database."""


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database, to be copied."""
    file = tmp_path_factory.mktemp("simulation") / "migrated.db"
    migrate(f"sqlite:///{file}")
    return file


@pytest.fixture
def on_sqlite(migrated_file: Path, tmp_path: Path) -> Callable[[], Pair]:
    """Makes two migrated SQLite databases."""
    numbers = itertools.count(1)

    def one() -> str:
        return f"sqlite:///{shutil.copy(migrated_file, tmp_path / f'{next(numbers)}.db')}"

    return lambda: (one(), one())


@pytest.fixture
def on_postgresql(postgres_server: PostgresServer) -> Iterator[Callable[[], Pair]]:
    """Makes two migrated PostgreSQL databases."""
    template = postgres_server.template_database("migrated", migrate)
    with contextlib.ExitStack() as at_the_end:

        def one() -> str:
            url = postgres_server.create_database(template)
            at_the_end.callback(postgres_server.drop_database, url)
            return url

        yield lambda: (one(), one())


@pytest.fixture
def worlds_machine(migrated_file: Path) -> Iterator[Machine]:
    """The product in memory, to be put into a state."""
    with contextlib.closing(Machine(WORKERS, migrated_file)) as machine:
        yield machine
