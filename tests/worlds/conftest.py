"""Fixtures of the worlds: a migrated database to begin from, and lines for the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery import migrate
from tests.worlds.machine import Machine
from tests.worlds.steps import World


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database, to be copied into memory."""
    file = tmp_path_factory.mktemp("worlds") / "migrated.db"
    migrate(f"sqlite:///{file}")
    return file


@pytest.fixture
def machine_of(migrated_file: Path) -> Iterator[Callable[[World], Machine]]:
    """Makes the product ready to be put into any state of a world."""
    made: list[Machine] = []

    def make(world: World) -> Machine:
        made.append(Machine(world, migrated_file))
        return made[-1]

    yield make
    for machine in made:
        machine.close()
