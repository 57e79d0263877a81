"""An upgrade that meets a lock: it waits, lets others through meanwhile, and gives up with a name and no trace."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from recovery import Busy, migrate, open_engine
from recovery.schema import VERSION
from tests.plugins.pg_server import PostgresServer
from tests.upgrade.interrupting import FULL, changed_ladder, climb_instead, state
from tests.upgrade.older import fill, identity, older_message, older_task
from tests.upgrade.statements import Watch, watched

PATIENCE_SECONDS = 120.0
ROUNDS = 3
LINE = ("WAIT_SECONDS = 60", "WAIT_SECONDS = 0.2")
TABLES = ("DDL_LOCK_SECONDS = 2", "DDL_LOCK_SECONDS = 0.2")
TRIES = ("TRIES = 10", "TRIES = 3")
WRITER = "UPDATE tasks SET fence = fence"
READER = "SELECT count(*) FROM tasks"
ANOTHER_UPGRADE = "SELECT pg_advisory_xact_lock(8243104023350440569)"
FIRST_TO_WAIT = ("BEGIN IMMEDIATE", "LOCK TABLE tasks")
"""Where an upgrade first meets somebody who is at the tasks."""


@pytest.fixture
def older(new_filled: Callable[[], str]) -> Iterator[sa.Engine]:
    """A database at the older step, for whoever is in the way."""
    made = open_engine(new_filled())
    yield made
    made.dispose()


@pytest.fixture
def older_server(postgres_server: PostgresServer) -> Iterator[sa.Engine]:
    """The same on a server, where readers are in the way too."""
    template = postgres_server.template_database("filled", fill)
    url = postgres_server.create_database(template)
    made = open_engine(url)
    yield made
    made.dispose()
    postgres_server.drop_database(url)


@pytest.fixture
def climb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the bounds of the ladder; those that a test can wait for are not used where all is asked for."""

    def change(*bounds: tuple[str, str], always: bool = False) -> None:
        if always or not FULL:
            climb_instead(monkeypatch, changed_ladder(tmp_path, "env.py", *bounds))

    return change


def url_of(engine: sa.Engine) -> str:
    """Its URL, password and all."""
    return engine.url.render_as_string(hide_password=False)


@contextlib.contextmanager
def held(engine: sa.Engine, statement: str) -> Iterator[None]:
    """What a statement locks, while this lasts."""
    with engine.connect() as connection:
        connection.execute(sa.text(statement))
        yield
        connection.rollback()


@contextlib.contextmanager
def waiting(url: str, first: tuple[str, ...] = FIRST_TO_WAIT) -> Iterator[Callable[[], str]]:
    """An upgrade in a thread that is about to meet the lock; called, it returns what that upgrade did."""
    reached = threading.Event()

    def act(_point: int) -> None:
        if seen.sent[-1].startswith(first):
            reached.set()

    seen = Watch(act)
    with ThreadPoolExecutor(1) as pool, watched(seen):
        done = pool.submit(migrate, url)
        assert reached.wait(PATIENCE_SECONDS)
        yield lambda: done.result(PATIENCE_SECONDS)


def test_it_gives_up(older: sa.Engine, climb: Callable[..., None]) -> None:
    """Behind a writer that does not end it is Busy after its bounds, nothing is changed, and a later one succeeds."""
    climb(LINE, TABLES, TRIES)
    before = state(url_of(older))
    with held(older, WRITER):
        with pytest.raises(Busy, match="nothing was stored, and the call may be repeated"):
            migrate(url_of(older))
        assert before == state(url_of(older))
    assert VERSION == migrate(url_of(older))


def test_it_goes_on(older: sa.Engine) -> None:
    """When the writer ends, the upgrade that waited for it is made."""
    with contextlib.ExitStack() as lock:
        lock.enter_context(held(older, WRITER))
        with waiting(url_of(older)) as upgrade:
            lock.close()
            assert VERSION == upgrade()


@pytest.mark.parametrize("lock", [READER, ANOTHER_UPGRADE], ids=["a reader", "another upgrade"])
def test_it_gives_up_on_a_server(older_server: sa.Engine, climb: Callable[..., None], lock: str) -> None:
    """Behind a reader or another upgrade that does not end it is Busy too, and nothing is changed."""
    climb(LINE, TABLES, TRIES, always=lock is ANOTHER_UPGRADE)
    before = state(url_of(older_server))
    with held(older_server, lock):
        with pytest.raises(Busy):
            migrate(url_of(older_server))
        assert before == state(url_of(older_server))
    assert VERSION == migrate(url_of(older_server))


def test_it_stands_behind_another_upgrade_once(older_server: sa.Engine, climb: Callable[..., None]) -> None:
    """WAIT_SECONDS says how long to stand behind another upgrade; only the waits for tables are tried again."""
    climb(LINE, TABLES, always=True)
    with held(older_server, ANOTHER_UPGRADE), watched(Watch()) as seen, pytest.raises(Busy):
        migrate(url_of(older_server))
    assert 1 == seen.sent.count(ANOTHER_UPGRADE)


def written(engine: sa.Engine, seconds: float) -> bool:
    """Whether a writer gets through within so many seconds."""
    with engine.connect() as connection:
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{seconds}s'"))
        try:
            connection.execute(sa.text(WRITER))
        except sa.exc.OperationalError:
            return False
        connection.commit()
        return True


def test_others_get_through_while_it_waits(older_server: sa.Engine, climb: Callable[..., None]) -> None:
    """While an upgrade tries again and again behind a reader, who writes waits no longer than one try."""
    climb(TABLES)
    with contextlib.ExitStack() as lock:
        lock.enter_context(held(older_server, READER))
        with waiting(url_of(older_server)) as upgrade:
            assert [True] * ROUNDS == [written(older_server, 10.0) for _ in range(ROUNDS)]
            lock.close()
            assert VERSION == upgrade()


def test_an_upgrade_that_lets_nobody_through_is_found(older_server: sa.Engine, climb: Callable[..., None]) -> None:
    """Planted: with one long wait for the table, all who write stand behind the reader with it."""
    climb(("DDL_LOCK_SECONDS = 2", "DDL_LOCK_SECONDS = 60"), always=True)
    with contextlib.ExitStack() as lock:
        lock.enter_context(held(older_server, READER))
        with waiting(url_of(older_server)) as upgrade:
            assert False in [written(older_server, 1.0) for _ in range(ROUNDS)]
            lock.close()
            assert VERSION == upgrade()


def insert(connection: sa.Connection, name: str) -> None:
    """Store a message as the older release does, which names neither queue nor priority."""
    tasks = older_task(name, state="pending")
    for table, row in (("inbox", older_message(name)), ("tasks", tasks)):
        columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
        connection.execute(sa.text(f"INSERT INTO {table} ({columns}) VALUES ({values})"), row)


def upgraded_beside_a_sender(engine: sa.Engine) -> str:
    """Upgrade while the older release stores a message: stored before the upgrade began, committed when it waits."""
    with engine.connect() as sender:
        insert(sender, "in between")
        with waiting(url_of(engine)) as upgrade:
            sender.commit()
            return upgrade()


def test_a_message_that_is_stored_meanwhile(older_server: sa.Engine) -> None:
    """The older release may go on storing while the upgrade waits for it; what it stores is upgraded too."""
    assert VERSION == upgraded_beside_a_sender(older_server)
    with older_server.connect() as connection:
        asked = sa.text("SELECT queue, priority FROM tasks WHERE task_id = :name")
        assert [("default", 0)] == [tuple(row) for row in connection.execute(asked, {"name": identity("in between")})]


def test_a_reader_of_a_file_is_not_in_the_way(tmp_path: Path) -> None:
    """On SQLite an upgrade does not wait for who reads, and who reads sees the old tables to the end."""
    url = f"sqlite:///{tmp_path}/x.db"
    fill(url)
    asked = "SELECT sql FROM sqlite_master WHERE name = 'tasks'"
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        before = reader.execute(asked).fetchone()
        assert VERSION == migrate(url)
        assert before == reader.execute(asked).fetchone()
        reader.execute("ROLLBACK")
        assert before != reader.execute(asked).fetchone()
