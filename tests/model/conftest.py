"""Fixtures: the two databases that the machine drives side by side, and how long it may take."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from recovery import migrate
from tests.model.worlds import World
from tests.plugins.pg_server import MEMORY, PostgresServer

VARIABLE = "RECOVERY_MODEL_PROFILE"

settings.register_profile(
    "model-ci",
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("model-full", settings.get_profile("model-ci"), max_examples=2000, derandomize=False)


@pytest.fixture(scope="session")
def profile() -> settings:
    """The small profile, or the one that the environment names: `full` is 2,000 examples of 50 steps."""
    return settings.get_profile(f"model-{os.environ.get(VARIABLE, 'ci')}")


@pytest.fixture(scope="session")
def worlds(postgres_server: PostgresServer) -> Iterator[tuple[World, ...]]:
    """SQLite and PostgreSQL, migrated and closed again at the end."""
    url = postgres_server.create_database(postgres_server.template_database("migrated", migrate))
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        file = f"sqlite:///{Path(folder)}/model.db"
        migrate(file)
        both = (World(file), World(url))
        yield both
        for world in both:
            world.close()
    postgres_server.drop_database(url)
