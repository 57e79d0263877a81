"""Fixtures of faults and races: a migrated database, and PostgreSQL alone."""

from __future__ import annotations

import pytest

from recovery import migrate


@pytest.fixture
def database(backend, request):
    """The URL of a migrated database of this test's own."""
    if backend == "sqlite":
        url = request.getfixturevalue("empty_url")
        migrate(url)
        yield url
        return
    url = request.getfixturevalue("postgres_database")
    yield url


@pytest.fixture
def postgres_database(postgres_server):
    """The URL of a migrated database on PostgreSQL."""
    url = postgres_server.create_database(postgres_server.template_database("migrated", migrate))
    yield url
    postgres_server.drop_database(url)
