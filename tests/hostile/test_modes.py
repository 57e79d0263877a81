"""What the library and the command make on a disk is its owner's alone, whatever the umask is."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from recovery import AuthContext, Queue, Receiver, migrate, open_engine
from recovery.cli import demo
from tests.hostile.refused_values import SENDER, good
from tests.plugins.commands import HANDLERS, Command, line

PRIVATE, PRIVATE_FOLDER = 0o600, 0o700
SIDES = ("", "-wal", "-shm", "-turns")


@pytest.fixture(params=(0o000, 0o022), ids=oct)
def umask(request):
    """A umask that keeps nobody out, and the usual one; for this process and its children."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def folder(tmp_path):
    """An empty folder."""
    made = tmp_path / "place"
    made.mkdir()
    return made


@pytest.fixture
def commands(folder, tmp_path):
    """The command, run beside its handlers, on a file in a folder of its own."""
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "work_of.py").write_text(HANDLERS)
    made = Command(beside, f"sqlite:///{folder}/q.db")
    yield made
    made.close()


def modes(folder):
    """The mode of everything below a folder, by its name."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
        if not path.is_symlink()
    }


def too_wide(folder):
    """What others could open, or look into: the names, with their modes in octal."""
    found = {name: mode for name, mode in modes(folder).items() if mode & 0o077}
    return {name: oct(mode) for name, mode in found.items()}


def files(name):
    """A database with all its companions, each its owner's alone."""
    return {f"{name}{side}": PRIVATE for side in SIDES}


def worked(queue):
    """One message, from its arrival until its reply is held."""
    queue.receive(good(), AuthContext(SENDER))
    queue.finish(queue.claim("w"), 1)
    return queue.claim_reply("d")


@pytest.mark.parametrize("driver", ["sqlite", "sqlite+pysqlite3"])
@pytest.mark.usefixtures("umask")
def test_a_queue_and_a_receiver(folder, driver):
    """The files of a queue and of a receiver, while both are open and at work."""
    queue_url, receiver_url = (f"{driver}:///{folder}/{name}.db" for name in ("q", "r"))
    migrate(queue_url)
    migrate(receiver_url)
    assert {"q.db": PRIVATE, "r.db": PRIVATE} == {name: mode for name, mode in modes(folder).items() if "-" not in name}
    with Queue.open(queue_url, allowed_sources={SENDER}) as queue, Receiver.open(receiver_url) as receiver:
        held = worked(queue)
        receiver.accept(held.reply_id, held.payload)
        assert files("q.db") | files("r.db") == modes(folder)


@pytest.mark.usefixtures("umask")
def test_an_engine_that_makes_the_file(folder):
    """`open_engine(create=True)` makes it as private as `migrate` does."""
    engine = open_engine(f"sqlite:///{folder}/q.db", create=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (x)")
        assert {"q.db": PRIVATE}.items() <= modes(folder).items()
        assert {} == too_wide(folder)
    engine.dispose()


@pytest.mark.usefixtures("umask")
def test_the_commands(commands, folder):
    """`migrate`, `send`, a worker that is in the middle of its work, and `deliver`, each a process of its own."""
    receiver_url = f"sqlite:///{folder}/r.db"
    for url in (commands.url, receiver_url):
        assert 0 == commands.run("migrate", "--url", url).code
        assert {} == too_wide(folder)
    commands.send(line("a"), line("b"))
    assert {} == too_wide(folder)
    worker = commands.working("hangs", "--once")
    assert files("q.db").items() <= modes(folder).items()
    worker.kill()
    assert {} == too_wide(folder)
    with Queue.open(commands.url) as queue:
        (task,) = queue.claim_batch("w", 1)
        queue.finish(task, 1)
    assert 0 == commands.run("deliver", "--to", receiver_url, "--once").code
    assert {"q.db", "r.db"} <= modes(folder).keys()
    assert {} == too_wide(folder)


@pytest.mark.usefixtures("umask")
def test_the_demo(monkeypatch, folder):
    """The demo's temporary folder and everything in it, looked at just before it is removed."""
    seen = {}

    class Watched(tempfile.TemporaryDirectory):
        def cleanup(self):
            seen["folder"] = stat.S_IMODE(Path(self.name).stat().st_mode)
            seen.update(modes(Path(self.name)))
            super().cleanup()

    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(tempfile, "TemporaryDirectory", Watched)
    demo.demo(None, None, prepare=False)
    assert PRIVATE_FOLDER == seen.pop("folder")
    assert {"queue.db", "receiver.db"} <= seen.keys()
    assert {PRIVATE} == set(seen.values())
    assert [] == list(folder.iterdir())


@pytest.mark.usefixtures("umask")
def test_the_demo_on_files_that_it_makes(commands, folder):
    """Files that were named to the demo are made as private, and stay."""
    ran = commands.run("demo", "--url", commands.url, "--receiver-url", f"sqlite:///{folder}/r.db")
    assert (0, "") == (ran.code, ran.err)
    assert {"q.db", "r.db"} <= modes(folder).keys()
    assert {} == too_wide(folder)


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o666, 0o600])
@pytest.mark.usefixtures("umask")
def test_a_file_that_is_there_already(folder, mode):
    """Its mode was its owner's choice and is kept; the line beside it stays private, and the rest follows the file."""
    (folder / "q.db").touch()
    (folder / "q.db").chmod(mode)
    migrate(f"sqlite:///{folder}/q.db")
    with Queue.open(f"sqlite:///{folder}/q.db", allowed_sources={SENDER}) as queue:
        worked(queue)
        assert {"q.db": mode, "q.db-wal": mode, "q.db-shm": mode, "q.db-turns": PRIVATE} == modes(folder)


@pytest.fixture
def kept(commands, tmp_path):
    """What a torture of some seconds keeps where it was told to."""

    def run():
        ran = commands.run("torture", "--minutes", "0.03", "--seed", "7", "--out", tmp_path / "kept", "--json")
        assert ran.out, ran.err
        return tmp_path / "kept"

    return run


@pytest.mark.usefixtures("umask")
def test_nobody_else_reaches_what_a_torture_keeps(kept):
    """The folder of each run is its owner's alone, and so are the histories in it, which have the messages."""
    (one,) = kept().iterdir()
    found = modes(one)
    assert PRIVATE_FOLDER == stat.S_IMODE(one.stat().st_mode) == found["histories"]
    assert {PRIVATE} == {mode for name, mode in found.items() if name.startswith("histories/")}


def test_every_file_that_a_torture_keeps(kept):
    """The report of a torture is as private as its histories."""
    before = os.umask(0)
    try:
        found = kept()
    finally:
        os.umask(before)
    assert {} == too_wide(found)


def test_a_bench_keeps_its_report_for_everybody_and_nothing_else(commands, folder, tmp_path, umask):
    """A report of numbers is made to be shown, by the umask; its databases are private and gone afterwards."""
    asked = ("contention", "--url", commands.url, "--processes", "1", "--batch", "1", "--threads", "1")
    briefly = ("--seconds", "0.2", "--rounds", "1", "--cycles", "3", "--quiet")
    ran = commands.run("bench", *asked, *briefly, "--out", tmp_path / "report")
    assert 0 == ran.code, ran.err
    assert [] == list(folder.iterdir())
    assert {0o666 & ~umask} == set(modes(tmp_path / "report").values())


def test_a_mode_that_is_too_wide_is_seen(monkeypatch, folder):
    """Planted: a file that is made with the umask, as SQLite itself would make it."""
    real = os.open

    def wide(path, flags, mode=0o777, **more):
        return real(path, flags, 0o666, **more)

    before = os.umask(0)
    monkeypatch.setattr(os, "open", wide)
    try:
        migrate(f"sqlite:///{folder}/q.db")
    finally:
        os.umask(before)
    assert {"q.db": "0o666"} == {name: mode for name, mode in too_wide(folder).items() if name == "q.db"}
