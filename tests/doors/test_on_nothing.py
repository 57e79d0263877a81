"""What is handed to on() and is no connection at all."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from recovery import Misconfigured, Queue
from tests.plugins.queues import SOURCES


@pytest.mark.parametrize("bad", [None, "connection", 7, SimpleNamespace()], ids=repr)
def test_what_is_no_connection(database_url, clock, bad):
    """Only a Connection can be joined; anything else is Misconfigured, with a sentence that says what is wanted."""
    with (
        Queue.open(database_url, allowed_sources=SOURCES, clock=clock) as queue,
        pytest.raises(Misconfigured, match="wants a SQLAlchemy Connection"),
    ):
        queue.on(bad)
