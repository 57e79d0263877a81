"""The line at the door of a SQLite file, among the connections of one process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from recovery import AuthContext, Busy, Envelope, Fenced, Queue, ReadOnly, migrate, open_engine, prepare_engine
from recovery.backend import sqlite, turns
from recovery.backend.turns import Turns
from tests.plugins.turns import places, until_standing

AUTH = AuthContext("agent-a")
LONG_SECONDS = 60.0
"""Nobody waits so long: a take that used it all would hang the test."""


@pytest.fixture
def path(tmp_path):
    """Where a database would be."""
    return str(tmp_path / "queue.db")


@pytest.fixture
def patient(monkeypatch):
    """Nobody passes anybody."""
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 10 * LONG_SECONDS)


@pytest.fixture
def stand(path):
    """Makes somebody who can stand in line; what they opened is closed at the end."""
    made = []

    def one():
        made.append(Turns(path))
        return made[-1]

    yield one
    for each in made:
        each.close()


def side(path):
    """The side file."""
    return Path(f"{path}-turns")


def test_the_file_is_made_at_the_first_take(path, stand):
    """Neither making, nor dropping, nor closing opens anything."""
    one = stand()
    one.drop()
    one.close()
    assert not side(path).exists()
    one.take(LONG_SECONDS)
    assert side(path).exists()


def test_the_file_is_private_and_empty(path, stand):
    """Its owner alone may open it, whatever the umask, and nothing is ever stored in it."""
    umask = os.umask(0)
    try:
        stand().take(LONG_SECONDS)
    finally:
        os.umask(umask)
    found = side(path).stat()
    assert (0o600, 0) == (stat.S_IMODE(found.st_mode), found.st_size)


def test_alone(path, stand):
    """Where nobody stands there is nothing to wait for, time and again."""
    one = stand()
    for _ in range(3):
        assert 0.0 == one.take(0.0)
        assert 1 == len(places(path))
        one.drop()
        assert [] == places(path)


def test_drop_and_close_again(path, stand):
    """To drop or close twice does nothing, and drops nobody else's place."""
    one, two = stand(), stand()
    one.take(LONG_SECONDS)
    one.drop()
    two.take(LONG_SECONDS)
    one.drop()
    one.close()
    one.close()
    assert 1 == len(places(path))


def test_the_time_is_bounded(path, stand, patient):
    """Who waited as long as it may says so, keeps its place until it drops, and takes nobody else's."""
    one, two = stand(), stand()
    one.take(LONG_SECONDS)
    assert 0.02 <= two.take(0.02) < LONG_SECONDS
    assert 2 == len(places(path))
    two.drop()
    assert 1 == len(places(path))


def test_first_come_first_served(path, stand, patient):
    """Threads go in the order in which they came."""
    order, threads = [], []
    first = stand()
    first.take(LONG_SECONDS)

    def go(number):
        mine = stand()
        mine.take(LONG_SECONDS)
        order.append(number)
        mine.drop()

    for number in range(6):
        threads.append(threading.Thread(target=go, args=(number,)))
        threads[-1].start()
        until_standing(path, number + 2)
    assert [] == order
    first.drop()
    for thread in threads:
        thread.join(LONG_SECONDS)
    assert list(range(6)) == order


def test_who_has_just_written_goes_last(path, stand, patient):
    """Somebody who comes back at once stands behind those who waited meanwhile."""
    order = []
    one, two = stand(), stand()
    one.take(LONG_SECONDS)

    def go():
        two.take(LONG_SECONDS)
        order.append("two")
        two.drop()

    waiting = threading.Thread(target=go)
    waiting.start()
    until_standing(path, 2)
    one.drop()
    one.take(LONG_SECONDS)
    order.append("one")
    waiting.join(LONG_SECONDS)
    assert ["two", "one"] == order


def test_two_in_the_same_nanosecond(path, stand, patient, monkeypatch):
    """One of them stands behind the other."""
    monkeypatch.setattr(time, "time_ns", lambda: 1000)
    one, two = stand(), stand()
    assert 0.0 == one.take(LONG_SECONDS)
    assert 0.01 <= two.take(0.01)
    assert [1000, 1001] == places(path)


def test_a_clock_that_was_set_back(path, stand, monkeypatch):
    """Whom somebody passed is forgotten then, and not everybody is passed until the time is back."""
    frozen, one, two = stand(), stand(), stand()
    frozen.take(LONG_SECONDS)
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.01)
    one.take(LONG_SECONDS)
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 10 * LONG_SECONDS)
    one.drop()
    frozen.drop()
    times = iter([1000, 2000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    two.take(LONG_SECONDS)
    assert 0.01 <= one.take(0.01)


def test_a_frozen_one_is_passed_once(path, stand, monkeypatch):
    """After the patience the others pass, one by one and in order, and do not wait for the frozen one again."""
    frozen, one, two = stand(), stand(), stand()
    frozen.take(LONG_SECONDS)
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.01)
    assert 0.01 <= one.take(LONG_SECONDS) < LONG_SECONDS
    assert 0.01 <= two.take(LONG_SECONDS) < LONG_SECONDS  # One does not move either.
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 10 * LONG_SECONDS)
    one.drop()
    two.drop()
    assert one.take(0.5) < 0.5
    assert 0.01 <= two.take(0.01)
    assert 3 == len(places(path))


def test_a_passed_one_is_forgotten(path, stand, monkeypatch):
    """When the frozen one has gone, nobody goes before the one who stands there next."""
    frozen, one = stand(), stand()
    frozen.take(LONG_SECONDS)
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.01)
    one.take(LONG_SECONDS)
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 10 * LONG_SECONDS)
    one.drop()
    frozen.drop()
    assert 0.0 == one.take(LONG_SECONDS)
    one.drop()
    frozen.take(LONG_SECONDS)
    assert 0.01 <= one.take(0.01)


@pytest.mark.parametrize("obstacle", ["no folder", "a folder", "a link"])
def test_without_a_file(tmp_path, obstacle):
    """Where the file cannot be had, there is no line and no error, now and later."""
    path = str(tmp_path / "no" / "queue.db") if obstacle == "no folder" else str(tmp_path / "queue.db")
    if obstacle == "a folder":
        side(path).mkdir()
    if obstacle == "a link":
        side(path).symlink_to(tmp_path / "elsewhere")
    one = Turns(path)
    for _ in range(2):
        assert 0.0 == one.take(LONG_SECONDS)
        one.drop()
    assert -1 == one._descriptor
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_for_reading(path, stand, monkeypatch, code):
    """A folder in which nothing may be made costs one try."""
    tries = []

    def refuse(*arguments):
        tries.append(arguments)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    one = stand()
    assert [0.0, 0.0] == [one.take(LONG_SECONDS), one.take(LONG_SECONDS)]
    assert 1 == len(tries)


def test_without_such_locks(path, stand, monkeypatch):
    """A kernel or a file system that refuses the locks costs one try, and the descriptor is closed."""

    def refuse(*_):
        raise OSError(errno.EINVAL, "no such locks")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    one = stand()
    assert [0.0, 0.0] == [one.take(LONG_SECONDS), one.take(LONG_SECONDS)]
    one.drop()
    assert -1 == one._descriptor


def test_locks_that_fail_later(path, stand, monkeypatch):
    """Locks that fail when the place is given up are done without, and nobody waits for what was held."""
    one, two = stand(), stand()
    one.take(LONG_SECONDS)

    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks left")

    with monkeypatch.context() as broken:
        broken.setattr(fcntl, "fcntl", refuse)
        one.drop()
    assert 0.0 == two.take(LONG_SECONDS)


def test_on_another_system(path, monkeypatch):
    """Where the system has no such locks, nothing is made."""
    monkeypatch.setattr(turns, "SUPPORTED", False)
    one = Turns(path)
    assert 0.0 == one.take(LONG_SECONDS)
    one.drop()
    assert not side(path).exists()


def test_a_program_that_is_started(stand):
    """The descriptor is closed on exec: another program would keep the place."""
    one = stand()
    one.take(LONG_SECONDS)
    assert not os.get_inheritable(one._descriptor)


def test_one_that_is_thrown_away(path):
    """A place goes with the object that held it, also where nobody closed it."""
    one = Turns(path)
    one.take(LONG_SECONDS)
    del one
    assert [] == places(path)


@pytest.fixture
def file(new_sqlite):
    """The path of a migrated SQLite file."""
    return new_sqlite.removeprefix("sqlite:///")


@pytest.fixture
def new_sqlite(tmp_path):
    """The URL of a migrated SQLite file."""
    url = f"sqlite:///{tmp_path / 'migrated.db'}"
    migrate(url)
    side(tmp_path / "migrated.db").unlink(missing_ok=True)
    return url


@pytest.fixture
def queue(new_sqlite):
    """A queue on a SQLite file, with a short bound for what is busy."""
    with Queue.open(new_sqlite, allowed_sources={"agent-a"}, busy_seconds=0.3) as opened:
        yield opened


def envelope(message_id="m-1"):
    """A message."""
    return Envelope(message_id, "agent-a", {"n": 1}, deadline=4e9)


def test_readers_make_no_file(queue, file):
    """To open a queue and to look at it makes no side file; the first verb that writes does, and leaves it free."""
    assert None is queue.task("none")
    assert [] == queue.replies()
    assert not side(file).exists()
    queue.receive(envelope(), AUTH)
    assert (0o600, []) == (stat.S_IMODE(side(file).stat().st_mode), places(file))


def test_the_callers_transaction_takes_no_turn(new_sqlite, file):
    """Verbs in the caller's transaction stand in no line."""
    engine = open_engine(new_sqlite)
    with Queue(engine, allowed_sources={"agent-a"}) as queue, engine.begin() as connection:
        queue.on(connection).receive(envelope(), AUTH)
    engine.dispose()
    assert not side(file).exists()


@pytest.mark.parametrize("option", ["turns=off", "turns=off&mode=rw"])
def test_turned_off_in_the_url(new_sqlite, file, option):
    """`turns=off` leaves the busy wait alone."""
    with Queue.open(f"{new_sqlite}?{option}", allowed_sources={"agent-a"}) as queue:
        queue.receive(envelope(), AUTH)
    assert not side(file).exists()


def test_turned_off_for_an_engine(new_sqlite, file):
    """So does the execution option on an engine of the caller's own."""
    engine = prepare_engine(sa.create_engine(new_sqlite, execution_options={"recovery_turns": False}))
    with Queue(engine, allowed_sources={"agent-a"}) as queue:
        queue.receive(envelope(), AUTH)
    engine.dispose()
    assert not side(file).exists()


def test_a_database_for_reading_makes_no_file(new_sqlite, file):
    """A verb that fails because the database was opened for reading leaves nothing beside it."""
    with Queue.open(f"{new_sqlite}?mode=ro", allowed_sources={"agent-a"}) as queue, pytest.raises(ReadOnly):
        queue.receive(envelope(), AUTH)
    assert not side(file).exists()


def test_one_line_behind_a_link(new_sqlite, file, tmp_path):
    """Who comes by a symbolic link stands in the same line."""
    link = tmp_path / "link.db"
    link.symlink_to(file)
    with Queue.open(f"sqlite:///{link}", allowed_sources={"agent-a"}) as queue:
        queue.receive(envelope(), AUTH)
    assert (True, False) == (side(file).exists(), side(link).exists())


def test_a_verb_has_the_turn(queue, file):
    """While a verb writes it has the turn, and when it is refused the turn is over."""
    seen = []
    queue.receive(envelope(), AUTH)
    claim = queue.claim("one")
    queue.finish(claim, "answer")
    sa.event.listen(queue.engine, "before_cursor_execute", lambda *_: seen.append(len(places(file))))
    with pytest.raises(Fenced):
        queue.finish(claim, "another")
    assert 1 in seen
    assert [] == places(file)


def test_a_turn_ends_with_a_lock_that_was_not_had(queue, file):
    """A verb that found the file locked for too long gives up its turn."""
    queue.receive(envelope(), AUTH)
    with queue.engine.connect() as holder:
        holder.exec_driver_sql("UPDATE inbox SET message_id = message_id")
        with pytest.raises(Busy):
            queue.receive(envelope("m-2"), AUTH)
        assert [] == places(file)


def test_a_turn_ends_with_a_commit_that_failed(queue, file, monkeypatch):
    """A commit whose answer was lost closes the connection, and its turn is over."""
    queue.receive(envelope(), AUTH)

    def fail(connection):
        raise RuntimeError("the answer was lost")

    with monkeypatch.context() as broken:
        broken.setattr(queue.engine.dialect, "do_commit", fail)
        with pytest.raises(RuntimeError):
            queue.receive(envelope("m-2"), AUTH)
    assert [] == places(file)
    queue.receive(envelope("m-3"), AUTH)


def test_a_turn_ends_with_an_interruption(queue, file, monkeypatch):
    """So does one that was interrupted anywhere."""
    queue.receive(envelope(), AUTH)

    def interrupt(connection):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(queue.engine.dialect, "do_commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue.receive(envelope("m-2"), AUTH)
    assert [] == places(file)


@pytest.mark.parametrize(("waited", "left"), [(0.0, 0.3), (0.04, 0.3), (0.2, 0.1), (0.3, 0.0), (0.9, 0.0)])
def test_the_wait_is_taken_off_the_bound(queue, monkeypatch, bounds, waited, left):
    """What was spent in line is not spent again at the lock; next to nothing is not worth a statement."""
    queue.receive(envelope(), AUTH)
    monkeypatch.setattr(Turns, "take", lambda self, seconds: waited)
    bounds.clear()
    queue.receive(envelope("m-2"), AUTH)
    assert left == pytest.approx(bounds[0], abs=0.0011)


@pytest.fixture
def bounds(monkeypatch):
    """The busy timeouts that connections were given, in seconds."""
    seen = []
    real = sqlite._wait_up_to

    def wait_up_to(notes, cursor, seconds):
        seen.append(seconds)
        real(notes, cursor, seconds)

    monkeypatch.setattr(sqlite, "_wait_up_to", wait_up_to)
    return seen


def test_the_bound_is_one_for_both(queue, file, stand_before, bounds):
    """Who spent the bound in line asks for the lock once more, and does not wait for it as well."""
    queue.receive(envelope(), AUTH)
    with queue.engine.connect() as holder, stand_before(file):
        holder.exec_driver_sql("UPDATE inbox SET message_id = message_id")
        bounds.clear()
        began = time.monotonic()
        with pytest.raises(Busy):
            queue.receive(envelope("m-2"), AUTH)
        assert 0.3 <= time.monotonic() - began < LONG_SECONDS
    assert 0 == bounds[0]


@pytest.fixture
def stand_before(monkeypatch):
    """Somebody who stands in line before all others, and whom nobody passes."""

    @contextlib.contextmanager
    def standing(file):
        monkeypatch.setattr(turns, "PATIENCE_SECONDS", LONG_SECONDS)
        one = Turns(file)
        one.take(0.0)
        yield
        one.close()

    return standing


def test_a_closed_engine_keeps_nothing_open(new_sqlite, file):
    """A connection's descriptor is closed with the connection."""
    with Queue.open(new_sqlite, allowed_sources={"agent-a"}) as queue:
        queue.receive(envelope(), AUTH)
        assert 1 == opened(file)
    assert 0 == opened(file)


def opened(file):
    """How many descriptors this process has on the side file."""
    # The descriptor that reads the folder is in the list, and gone by then.
    found = [each.resolve() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return found.count(side(file))
