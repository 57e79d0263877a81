"""Broken builds are tested where somebody asks for them: each takes some seconds, and there are many."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out, and count them as deselected, unless `-m` speaks of mutants."""
    if "mutants" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("mutants")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
