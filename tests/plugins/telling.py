"""A fixture: what a test found out, told at the end of the run whether it passed or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TOLD = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Says something at the end of the run."""
    return pytestconfig.stash.setdefault(TOLD, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The lines of this run, in the order in which they were told."""
    for line in config.stash.get(TOLD, []):
        terminalreporter.write_line(line)
