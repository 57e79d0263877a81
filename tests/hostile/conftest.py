"""Fixtures: how many hostile inputs there are, and a database with secrets in all that a caller may say."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.driving import Place, file_place, server_place

VARIABLE = "RECOVERY_HOSTILE_INPUTS"


@pytest.fixture(scope="session")
def inputs() -> int:
    """How many: 20,000, or what the environment says."""
    return int(os.environ.get(VARIABLE, "20000"))


@pytest.fixture
def place(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A database of the test's own, with secrets; on a server also in the name and password of its URL."""
    with contextlib.ExitStack() as at_the_end:
        if backend == "sqlite":
            (tmp_path / "place").mkdir()
            yield at_the_end.enter_context(file_place(tmp_path / "place"))
        else:
            yield at_the_end.enter_context(server_place(request.getfixturevalue("postgres_server")))
