"""Where a database can only be read: every writing verb says so, every reading one works, and nothing is changed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from unittest import mock

import alembic.command
import psycopg
import pytest
import sqlalchemy as sa

import recovery.cli.app
from recovery import ManualClock, Misconfigured, Queue, Receiver, RecoveryError, migrate
from recovery.__main__ import main
from tests.plugins.pg_binaries import Account
from tests.plugins.pg_server import new_folder
from tests.plugins.queues import AUTH, SOURCES, Door, Stored, envelope

PRELOADED = (alembic.command, recovery.cli.app)
"""A child that stopped being root may be unable to read the libraries: what it needs must be there before."""
POSTGRES_KINDS = [
    ("read_only_role", "sync"),
    ("read_only_role", "async"),
    ("read_only_database", "sync"),
    ("standby", "sync"),
]
SQLITE_KINDS = ("mode_ro", "file", "file_and_folder")
WRITES = {
    "receive": lambda queue, held: queue.receive(envelope("new"), AUTH),
    "receive_all": lambda queue, held: queue.receive_all([envelope("new")], AUTH),
    "claim": lambda queue, held: queue.claim("w"),
    "renew": lambda queue, held: queue.renew(held["claim"]),
    "finish": lambda queue, held: queue.finish(held["claim"], 1),
    "fail": lambda queue, held: queue.fail(held["claim"], "no"),
    "release": lambda queue, held: queue.release(held["claim"]),
    "cancel": lambda queue, held: queue.cancel(held["claim"].task_id),
    "claim_reply": lambda queue, held: queue.claim_reply("d"),
    "settle": lambda queue, held: queue.settle(held["reply"], delivered=True),
    "reconcile": lambda queue, held: queue.reconcile(),
}


def with_work(url):
    """Fill a database with something for each verb to do, and return what is held of it."""
    clock = ManualClock(1000.0)
    with Queue.open(url, allowed_sources=SOURCES, clock=clock) as queue:
        for message_id in ("held", "waiting"):
            queue.receive(envelope(message_id), AUTH)
        for message_id in ("sending", "to send"):
            queue.receive(envelope(message_id, deadline=1.0), AUTH)
        queue.receive(envelope("due", deadline=1005.0), AUTH)
        return {"claim": queue.claim("w"), "reply": queue.claim_reply("d")}


def outcome(call, *args):
    """The class of the error that a call ends in, or that it ended well."""
    try:
        call(*args)
    except RecoveryError as error:
        return type(error).__name__
    return "done"


def tried(queue, receiver, clock, held):
    """What became of every verb that writes, and what the ones that read answered."""
    writes = {name: outcome(write, queue, held) for name, write in WRITES.items() if name != "reconcile"}
    writes["accept"] = outcome(receiver.accept, "reply:x", "x")
    clock.advance(6)  # Now there is something to settle.
    writes["reconcile"] = outcome(WRITES["reconcile"], queue, held)
    counts, task = queue.counts(), queue.task(held["claim"].task_id)
    reads = [counts.received, task.state, queue.explain(task.task_id).task_id, len(queue.replies())]
    return writes, [*reads, receiver.effect_count()]


def expected(held, error="ReadOnly"):
    """What must become of them: the error for all that write, and the answers of all that read."""
    return dict.fromkeys([*WRITES, "accept"], error), [5, "running", held["claim"].task_id, 2, 0]


def tried_at(url, door, held):
    """Open the database and try everything."""
    with contextlib.ExitStack() as at_the_end:
        behind, clock = Door(door, at_the_end), ManualClock(1000.0)
        queue = behind.queue(url, allowed_sources=SOURCES, clock=clock)
        return tried(queue, behind.receiver(url, clock=clock), clock, held)


def contents(url):
    """Every row of every table."""
    seen = Stored(url)
    found = seen.contents()
    seen.engine.dispose()
    return found


class ServerWithRoles:
    """A server of our own with one migrated database, and the ways in which it can only be read."""

    def __init__(self, server, at_the_end):
        self._server, self._at_the_end = server, at_the_end
        self.url = server.create_database(server.template_database("migrated", migrate))
        at_the_end.callback(server.drop_database, self.url)

    def run(self, statement):
        """One statement in the database, as its owner."""
        with psycopg.connect(self.url, autocommit=True) as line:
            line.execute(statement)

    def role(self, name, rights, settings):
        """The URL for a new role."""
        self.run(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        self._at_the_end.callback(self.run, f"DROP OWNED BY {name}; DROP ROLE {name}")
        self.run(f"GRANT {rights} ON ALL TABLES IN SCHEMA public TO {name}; {settings}")
        return sa.make_url(self.url).set(username=name, password="secret").render_as_string(hide_password=False)

    def read_only_role(self):
        """A role that may write, but begins every transaction read-only."""
        return self.role("reader", "ALL", "ALTER ROLE reader SET default_transaction_read_only = on")

    def select_only_role(self):
        """A role that was granted SELECT and nothing else."""
        return self.role("looker", "SELECT", "")

    def read_only_database(self):
        """The database itself says that transactions are read-only."""
        name = sa.make_url(self.url).database
        self.run(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        return self.url

    def standby(self):
        """The whole server is a hot standby, until the test is over."""
        signal = self._server.directory / "data" / "standby.signal"
        self._server.stop()
        signal.touch()
        self._at_the_end.callback(self._server.restart)
        self._at_the_end.callback(signal.unlink)
        self._server.start()
        return self.url


@pytest.fixture
def server(private_postgres):
    """A server with a database that has work in it."""
    with contextlib.ExitStack() as at_the_end:
        yield ServerWithRoles(private_postgres, at_the_end)


@pytest.mark.parametrize(("kind", "door"), POSTGRES_KINDS)
def test_a_server_that_is_only_read(server, kind, door):
    """Where the server says read-only, writing verbs are ReadOnly, reading ones work, and nothing is changed."""
    held = with_work(server.url)
    before = contents(server.url)
    url = getattr(server, kind)()
    assert expected(held) == tried_at(url, door, held)
    assert before == contents(server.url)


def test_a_role_that_may_only_look(server):
    """Where the right to write is missing, every writing verb says so, and nothing is changed."""
    held = with_work(server.url)
    before = contents(server.url)
    url = server.select_only_role()
    assert expected(held, "Misconfigured") == tried_at(url, "sync", held)
    with Queue.open(url, clock=ManualClock(1006.0)) as queue, pytest.raises(Misconfigured, match="lacks a right"):
        queue.reconcile()
    assert before == contents(server.url)


@pytest.mark.parametrize("kind", ["read_only_role", "standby"])
def test_the_command_on_a_server_that_is_only_read(server, kind):
    """`recovery status` works; `work` is one sentence and exit 2."""
    with_work(server.url)
    url = getattr(server, kind)()
    code, out, _ = command("status", "--json", "--url", url)
    assert (0, 5) == (code, json.loads(out)["received"])
    code, out, err = command("work", "--handler", "json:dumps", "--once", "--url", url)
    assert (2, "", 1, True) == (code, out, len(err.splitlines()), "only be read" in err)


def command(*args):
    """The command in this process: exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    streams = mock.patch.multiple(sys, argv=["recovery", *args], stdout=out, stderr=err)
    with streams, pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, out.getvalue(), err.getvalue()


class File:
    """A migrated SQLite file with work in it, in a folder of its own, and the ways in which it can only be read."""

    def __init__(self):
        self._account = Account.for_server()
        self.folder = new_folder(self._account, memory=False)
        self.path = self.folder / "recovery.db"
        self.url = f"sqlite:///{self.path}"
        migrate(self.url)
        self.held = with_work(self.url)
        if self._account is not None:
            self._account.owns(self.folder)

    def mode_ro(self):
        """The URL says so."""
        self.url += "?mode=ro"

    def file(self):
        """The file is write-protected."""
        self.path.chmod(0o444)

    def file_and_folder(self):
        """The file is write-protected, and nothing can be made beside it."""
        self.file()
        self.folder.chmod(0o555)

    def state(self):
        """What stands in the folder, and the file's bytes."""
        return sorted(path.name for path in self.folder.iterdir()), self.path.read_bytes()

    def as_its_owner(self, work):
        """What `work()` returns in a child that is not root: file modes do not bind root."""
        source, sink = os.pipe()
        if os.fork() == 0:
            try:
                if self._account is not None:
                    os.setgroups([])
                    os.setgid(self._account.gid)
                    os.setuid(self._account.uid)
                answer = work()
            except BaseException as error:  # noqa: BLE001 - the child must end here, whatever it was
                answer = repr(error)
            os.write(sink, json.dumps(answer).encode())
            os._exit(0)
        os.close(sink)
        os.wait()
        with os.fdopen(source, "rb") as answers:
            return json.loads(answers.read())

    def close(self):
        """Remove all of it."""
        self.folder.chmod(0o755)
        shutil.rmtree(self.folder)


@pytest.fixture
def file():
    """A migrated file with work in it."""
    made = File()
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["mode_ro", "file"])
@pytest.mark.parametrize("door", ["sync", "async"])
def test_a_file_that_is_only_read(file, kind, door):
    """Writing verbs are ReadOnly, reading ones work, and no byte of the file is changed."""
    _, before = file.state()
    getattr(file, kind)()
    writes, reads = file.as_its_owner(lambda: tried_at(file.url, door, file.held))
    assert expected(file.held) == (writes, reads)
    assert before == file.state()[1]


def test_a_folder_that_is_only_read(file):
    """Without room for SQLite's own files beside it, opening is ReadOnly, and nothing is made."""
    file.file_and_folder()
    before = file.state()
    assert "ReadOnly" == file.as_its_owner(lambda: outcome(Queue.open, file.url))
    assert "ReadOnly" == file.as_its_owner(lambda: outcome(Receiver.open, file.url))
    assert before == file.state()


@pytest.mark.parametrize("kind", SQLITE_KINDS)
@pytest.mark.parametrize(
    "args", [("work", "--handler", "json:dumps", "--once"), ("migrate",)], ids=lambda args: args[0]
)
def test_the_command_on_a_file_that_is_only_read(file, kind, args):
    """What would write says one sentence and exits 2, and leaves the file, byte for byte."""
    # Typer imports the rest of itself at the first command, which a child that is not root may be unable to.
    assert 0 == command("status", "--help")[0]
    getattr(file, kind)()
    names, before = file.state()
    code, out, err = file.as_its_owner(lambda: command(*args, "--url", file.url))
    assert (2, "", 1, False) == (code, out, len(err.splitlines()), "Traceback" in err)
    # SQLite itself needs its two files beside a file in WAL mode, also to read it.
    may_be_made = set() if args[0] == "migrate" or kind == "file_and_folder" else {"recovery.db-shm", "recovery.db-wal"}
    assert set(file.state()[0]) - set(names) <= may_be_made
    assert before == file.state()[1]


def test_mode_ro_makes_nothing(tmp_path):
    """Neither opening nor migrating a missing file with mode=ro makes it."""
    url = f"sqlite:///{tmp_path}/missing.db?mode=ro"
    for args in (("status",), ("migrate",), ("work", "--handler", "json:dumps")):
        code, out, err = command(*args, "--url", url)
        assert (2, "", 1) == (code, out, len(err.splitlines()))
    assert [] == list(tmp_path.iterdir())
