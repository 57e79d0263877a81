"""Fixtures of the permutations: a court over a database of its own, and the counts of the run at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from recovery import migrate
from recovery.repositories import claiming
from tests.permutations.choosing import is_full
from tests.permutations.judging import Court
from tests.permutations.place import Place
from tests.permutations.totals import Totals
from tests.plugins.pg_server import PostgresServer
from tests.plugins.telling import TOLD


@pytest.fixture(autouse=True, scope="module")
def _patient() -> Iterator[None]:
    """What a connection remembers of its last claim is forgotten by nobody's watch, so that runs are alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claiming, "WHOLE_SECONDS", 1e9)
        yield


@pytest.fixture(scope="session")
def totals(pytestconfig: pytest.Config) -> Iterator[Totals]:
    """What was run; told at the end."""
    found = Totals()
    yield found
    pytestconfig.stash.setdefault(TOLD, []).extend(found.lines())


@pytest.fixture(scope="module")
def new_court(postgres_server: PostgresServer) -> Iterator[Callable[..., Court]]:
    """Makes courts, each over a migrated database with settings of its own; all are closed after the module."""
    with contextlib.ExitStack() as at_the_end:

        def make(*settings: str) -> Court:
            url = postgres_server.create_database(postgres_server.template_database("migrated", migrate))
            at_the_end.callback(postgres_server.drop_database, url)
            place = Place(url, settings)
            at_the_end.callback(place.close)
            court = Court(place, every_statement=is_full())
            at_the_end.callback(court.close)
            return court

        yield make


@pytest.fixture(scope="module")
def court(new_court: Callable[..., Court]) -> Court:
    """A court over a database with plain settings."""
    return new_court()
