"""A server of our own: what was committed is there after it was stopped in the middle of everything."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from recovery.testing.torture.server import embedded


@pytest.fixture
def server(postgres_server):
    """A server; where tests have PostgreSQL at all, its programs are there."""
    with embedded() as made:
        yield made


def test_a_crash_keeps_what_was_committed(server):
    """Sessions are cut off, open transactions are gone, committed rows stay, under the same URL."""
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept (n INT)")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO kept VALUES (2)")
        server.crash()
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url)
    server.start()
    with psycopg.connect(server.url) as connection:
        assert [(1,)] == connection.execute("SELECT n FROM kept").fetchall()


def test_nothing_is_left(postgres_server):
    """Neither its folder nor the server itself."""
    with embedded() as server:
        url, folder = server.url, server._directory
    assert not Path(folder).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
