"""Fixtures: tables that stand in one of three states, large enough that a bad plan would cost something."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from benchmarks import filling
from benchmarks.filling import DEADLINE_SECONDS, FUTURE_SECONDS, Fill, analyse, fill
from benchmarks.targets import Place
from recovery import Queue, migrate, open_engine
from recovery.backend import of
from recovery.repositories import claiming
from tests.plans.gates import ANOTHER, EMPTY, FULL, LONG_AGO, STATISTICS
from tests.plans.verbs import LONG_SECONDS, Everything

FINISHED, RUNNING, PENDING, FUTURE = 12_000, 2_000, 6_000, 6_000
RECEIPTS = 6_000
MOVED_SECONDS = 60 * 24 * 3600.0


@dataclass(frozen=True)
class Opened:
    """A place with an open queue, and what its database believes."""

    place: Place
    queue: Queue
    statistics: str = ""

    def session(self) -> Everything:
        """Every verb on one connection."""
        return Everything.of(self.queue)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a connection remembers of its last claim is forgotten by nobody's watch, so that counts are exact."""
    monkeypatch.setattr(claiming, "WHOLE_SECONDS", 1e9)


@pytest.fixture(scope="module")
def url(backend: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a migrated database that the tests of a module share."""
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/plans.db"
        migrate(url)
        yield url
        return
    server = request.getfixturevalue("postgres_server")
    url = server.create_database(server.template_database("migrated", migrate))
    yield url
    server.drop_database(url)


@pytest.fixture
def opened(url: str) -> Iterator[Opened]:
    """That database, with a queue."""
    with opened_at(Place(url, "")) as queue:
        yield queue


@pytest.fixture(scope="module", params=STATISTICS)
def large(url: str, request: pytest.FixtureRequest) -> Place:
    """Tables with many rows of every kind, and statistics of another day."""
    asked: str = request.param
    place = Place(url, f"s{STATISTICS.index(asked)}_")
    migrate(url, table_prefix=place.prefix)
    statistics_by_hand(place)
    if asked == ANOTHER:
        _fill(place, Fill("done", 1, "first", overrides={"queue": "'another'", "priority": "5"}))
    if asked in (ANOTHER, EMPTY):
        analyse(place)
    with _set_aside(place):
        fill_up(place, MOVED_SECONDS if asked == LONG_AGO else 0.0)
    if asked in (FULL, LONG_AGO):
        analyse(place)
    if asked == LONG_AGO:
        _run(place, *_later(place))
    _clean(place)
    return place


@pytest.fixture
def crowded(large: Place, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The large tables, with a queue."""
    with opened_at(large, request.node.callspec.params["large"]) as queue:
        yield queue


def fill_up(place: Place, moved: float = 0.0) -> None:
    """Many rows of every kind, about which the database is told nothing; their times so many seconds in the past."""
    _fill(place, *_everything(moved))
    _run(place, *_receipts(place))


@contextmanager
def opened_at(place: Place, statistics: str = "") -> Iterator[Opened]:
    """A queue there, whose leases end in no test."""
    engine = open_engine(place.url)
    yield Opened(place, Queue(engine, **place.settings(delivery_lease_seconds=LONG_SECONDS)), statistics)
    engine.dispose()


def _everything(moved: float) -> tuple[Fill, ...]:
    """What the tables hold; with everything that is to come moved into the past by so many seconds."""
    now = time.time() - moved
    open_ones = {"deadline": f"{now + DEADLINE_SECONDS:.3f}"}
    held = open_ones | {"lease_until": f"{now + LONG_SECONDS:.3f}"}
    to_come = open_ones | {"available_at": f"{now + FUTURE_SECONDS:.3f}"}
    return (
        Fill("done", FINISHED, "done"),
        Fill("expired", RUNNING, "running", overrides=held),
        Fill("pending", PENDING, "pending", overrides=open_ones),
        # These would come first if they were due, and those are all that their queue has.
        Fill("future", FUTURE, "important", overrides=to_come | {"priority": "9"}),
        Fill("future", FUTURE, "later", overrides=to_come | {"queue": "'later'"}),
    )


def _later(place: Place) -> tuple[str, ...]:
    """Move what is to come back to where it is to come."""
    tasks = place.tables.tasks.name
    by = f"+ {MOVED_SECONDS}"
    return (
        f"UPDATE {tasks} SET deadline = deadline {by}, lease_until = lease_until {by} WHERE state <> 'done'",
        f"UPDATE {tasks} SET available_at = available_at {by} WHERE priority = 9 OR queue = 'later'",
    )


def _receipts(place: Place) -> tuple[str, ...]:
    """Half of the replies have arrived, and there is a receipt for each of them."""
    at = place.tables
    outbox, receipts, effects = at.outbox.name, at.receipts.name, at.effects.name
    half = f"SELECT reply_id FROM {outbox} WHERE state = 'pending' ORDER BY arrival LIMIT {RECEIPTS}"
    effect = f"SELECT reply_id, received_at FROM {receipts} WHERE reply_id NOT IN (SELECT reply_id FROM {effects})"
    is_new = f"state = 'sent' AND reply_id NOT IN (SELECT reply_id FROM {receipts})"
    stored = f"SELECT reply_id, 'none', payload, created_at FROM {outbox} WHERE {is_new}"
    return (
        f"UPDATE {outbox} SET state = 'sent', settled_at = created_at WHERE reply_id IN ({half})",
        f"INSERT INTO {receipts} (reply_id, content_hash, payload, received_at) {stored}",
        f"INSERT INTO {effects} (reply_id, applied_at) {effect}",
    )


def _fill(place: Place, *fills: Fill) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "analyse", lambda place: None)
        fill(place, *fills)


def statistics_by_hand(place: Place) -> None:
    """Where a server would analyse tables by itself, keep it from that."""
    if not _in_process(place):
        _run(place, *(f"ALTER TABLE {name} SET (autovacuum_enabled = off)" for name in place.tables.metadata.tables))


@contextmanager
def _set_aside(place: Place) -> Iterator[None]:
    """Where statistics are a table like others, take them away for a while: filling by bad ones would take minutes."""
    if not _in_process(place):
        yield
        return
    _run(place, "ANALYZE", "CREATE TABLE aside AS SELECT * FROM sqlite_stat1", "DELETE FROM sqlite_stat1")
    yield
    _run(place, "INSERT INTO sqlite_stat1 SELECT * FROM aside", "DROP TABLE aside")


def _clean(place: Place) -> None:
    """Where changed rows leave dead ones behind, take those away; the statistics stay what they are."""
    if not _in_process(place):
        _run(place, *(f"VACUUM {name}" for name in place.tables.metadata.tables), alone=True)


def _in_process(place: Place) -> bool:
    return of(place.engine()).in_threads


def _run(place: Place, *statements: str, alone: bool = False) -> None:
    engine = place.engine()
    with engine.connect() as connection:
        if alone:
            connection.execution_options(isolation_level="AUTOCOMMIT")
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.commit()
    engine.dispose()
