"""A plug-in that plants one fault in the product for a whole run: `pytest -p tests.simulation.planting`."""

from __future__ import annotations

import os
from typing import Final

import pytest

from recovery.repositories import InboxRepository
from tests.worlds.faults import FAULTS, Plant

VARIABLE: Final = "RECOVERY_PLANTED_FAULT"


def _collision_is_duplicate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InboxRepository, "_unknown", lambda *_: [])


PLANTS: Final[dict[str, Plant]] = {
    **{name: fault.plant for name, fault in FAULTS.items()},
    "a collision is a duplicate": _collision_is_duplicate,
}
"""The explorer's faults, and one that shows where somebody lies."""


def pytest_configure(config: pytest.Config) -> None:
    """Plant the fault that the environment names, until the run is over."""
    patch = pytest.MonkeyPatch()
    PLANTS[os.environ[VARIABLE]](patch)
    config.add_cleanup(patch.undo)
