"""Tests that are run only where somebody asks for them: in containers, as root, over broken builds."""

from __future__ import annotations

import pytest

ASKED_FOR = ("container", "machine", "mutants")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out, and count them as deselected, unless `-m` speaks of their mark."""
    unasked = [mark for mark in ASKED_FOR if mark not in config.option.markexpr]
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in unasked)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
