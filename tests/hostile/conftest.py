"""Fixtures: both databases side by side, and how many hostile inputs there are."""

from __future__ import annotations

import os

import pytest

VARIABLE = "RECOVERY_HOSTILE_INPUTS"


@pytest.fixture(scope="session")
def inputs() -> int:
    """How many: 20,000, or what the environment says."""
    return int(os.environ.get(VARIABLE, "20000"))
