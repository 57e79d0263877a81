"""Fixtures of this folder: a primary and its standby. They need PostgreSQL's programs, and take long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.failover.servers import STRICT, Pair, pair_of_servers


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this folder, so that none is run by an ordinary `pytest`."""
    item.add_marker(pytest.mark.machine)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary that answers no COMMIT before its standby has it."""
    with pair_of_servers(STRICT) as made:
        yield made
