"""What the command says where a database cannot be used: one sentence, exit 2, nothing made and nothing changed."""

from __future__ import annotations

import io
import sqlite3
import sys

import psycopg
import pytest
import sqlalchemy as sa

from recovery import migrate
from recovery.__main__ import main

COMMANDS = [
    ("status",),
    ("explain", "x"),
    ("send", "--as", "me"),
    ("work", "--handler", "json:dumps", "--once"),
    ("deliver", "--to", "sqlite:///q.db", "--once"),
]
BAD_URLS = {
    "nonsense": "cannot be read",
    "": "cannot be read",
    "postgres://me:s3cret@h/d": "write postgresql://",
    "mysql://me:s3cret@h/d": "this is neither",
    "mysql+asyncmy://me:s3cret@h/d": "this is neither",
    "postgresql+psycopg2://me:s3cret@h/d": "psycopg 3",
    "postgresql+asyncpg://me:s3cret@h/d": "psycopg 3",
    "sqlite+aiosqlite:///q.db": "standard driver",
    "sqlite://": "in memory",
    "sqlite:///:memory:": "in memory",
    "sqlite:///q.db?mode=memory": "in memory",
    "sqlite:///file:q.db?uri=true": "path of the file",
    "sqlite:///q.db?cache=shared": "mode=rw",
}


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder, and returns the one sentence with which it ended, exit 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))

    def run(command, url):
        monkeypatch.setattr(sys, "argv", ["recovery", *command, "--url", url])
        with pytest.raises(SystemExit) as ended:
            main()
        return sentence(ended.value.code, *capsys.readouterr())

    return run


def sentence(code, out, err):
    """What was said, if it was one sentence and nothing else."""
    assert (2, "", 1, "recovery: ") == (code, out, len(err.splitlines()), err[:10]), err
    assert (False, False) == ("Traceback" in err, "s3cret" in err)
    return err


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_that_cannot_be_used(tmp_path, refused, url):
    """Each has a sentence that says what to write, without the password, also for `migrate`, and no file is made."""
    for command in (("status",), ("migrate",)):
        assert BAD_URLS[url] in refused(command, url)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_missing_file(tmp_path, refused, command):
    """Every command but `migrate` says how to make the file, and does not make it."""
    assert "recovery migrate" in refused(command, "sqlite:///missing.db")
    assert [] == list(tmp_path.iterdir())


def test_a_missing_folder(tmp_path, refused):
    """`migrate` makes a file and no folder."""
    refused(("migrate",), "sqlite:///none/missing.db")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"no database at all, and long enough to be read as one " * 40, b"\0" * 4096])
def test_another_kind_of_file(tmp_path, refused, content):
    """A file that is no SQLite database is refused, and left as it is."""
    (tmp_path / "q.db").write_bytes(content)
    for command in (("status",), ("migrate",)):
        assert "not a SQLite database" in refused(command, "sqlite:///q.db")
    assert content == (tmp_path / "q.db").read_bytes()


@pytest.fixture
def other_version(new_migrated):
    """Makes a migrated database that says it is at another version; None takes the table away."""

    def make(version):
        url = new_migrated()
        engine = sa.create_engine(sa.make_url(url).set(drivername=DRIVERS[url.partition(":")[0]]))
        with engine.begin() as connection:
            connection.execute(sa.text(CHANGES[version is None].format(version)))
        engine.dispose()
        return url

    return make


DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
CHANGES = ("UPDATE recovery_version SET version_num = '{}'", "DROP TABLE recovery_version")


@pytest.mark.parametrize(
    ("version", "advice"), [(None, "recovery migrate"), ("0000", "recovery migrate"), ("9999", "upgrade")]
)
def test_another_schema(refused, other_version, version, advice):
    """A schema that is missing, too old or too new is refused with what to do, on both backends."""
    url = other_version(version)
    assert advice in refused(("status",), url)


def test_newer_tables_are_not_migrated_back(refused, other_version):
    """`migrate` refuses tables of a later release."""
    assert "upgrade recovery" in refused(("migrate",), other_version("9999"))


def test_a_server_that_is_not_there(refused):
    """A server that cannot be reached is one sentence that names neither user nor password."""
    url = "postgresql://somebody:s3cret@127.0.0.1:1/nothing"
    for command in (("status",), ("migrate",)):
        assert "cannot be reached" in refused(command, url)


def test_a_database_that_is_not_there(refused, postgres_server):
    """A database that does not exist is refused, and not made."""
    url = postgres_server.url("recovery_test_never_made")
    for command in (("status",), ("migrate",)):
        refused(command, url)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_an_older_journal(tmp_path, refused):
    """A file that is not in WAL mode is refused, and stays in the mode it was in."""
    migrate(f"sqlite:///{tmp_path}/q.db")
    line = sqlite3.connect(tmp_path / "q.db")
    line.execute("PRAGMA journal_mode = DELETE")
    line.close()
    before = (tmp_path / "q.db").read_bytes()
    assert "WAL" in refused(("status",), "sqlite:///q.db")
    assert (["q.db"], before) == ([path.name for path in tmp_path.iterdir()], (tmp_path / "q.db").read_bytes())
