"""A fixture: what a test found out, told at the end of the run whether it passed or not, by whichever process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

TOLD = pytest.StashKey[list[str]]()
HANDED_OVER = "told"
"""The name under which a worker of pytest-xdist hands its lines to the process that shows them."""


def told(config: pytest.Config) -> list[str]:
    """What is told at the end of this run."""
    return config.stash.setdefault(TOLD, [])


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Says something at the end of the run."""
    return told(pytestconfig).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands over what it was told."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[HANDED_OVER] = told(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker hands over; one that crashed has nothing."""
    told(node.config).extend(getattr(node, "workeroutput", {}).get(HANDED_OVER, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The lines of this run, each once, in the order in which they were told."""
    for line in dict.fromkeys(told(config)):
        terminalreporter.write_line(line)
