"""The command: secrets are in nothing that it prints, keeps, or hands to the processes that it starts."""

from __future__ import annotations

import io
import json
import sys
import time

import pytest
import sqlalchemy as sa

from recovery import Queue, Receiver
from recovery.__main__ import main
from tests.hostile.canaries import command_lines, files_with
from tests.hostile.driving import WRECKS, admit_nobody
from tests.plugins.commands import HANDLERS, PATIENCE_SECONDS, Command, Ran, line

RAISES = """

def raises(payload):
    raise RuntimeError(payload["secret"] + " " + "".join(payload))

def chained(payload):
    try:
        raises(payload)
    except RuntimeError as error:
        raise LookupError(str(error)) from error

def group(payload):
    raise ExceptionGroup(payload["secret"], [ValueError(payload["secret"])])

class Loud:
    def __init__(self, payload):
        self.payload = payload

    def __repr__(self):
        return "Loud(" + self.payload["secret"] + ")"

def loud(payload):
    return Loud(payload)

def bad_key(payload):
    return {payload["secret"]: Loud(payload)}
"""
FAILING = ("raises", "chained", "group", "loud", "bad_key", "permanent", "bad_text", "database_error")
STATES = {"pending", "failed"}
HANGS = ("work", "--handler", "work_of:hangs", "--once")


@pytest.fixture
def folder(tmp_path):
    """Where the command runs, beside handlers that tell all they know."""
    made = tmp_path / "folder"
    made.mkdir()
    (made / "work_of.py").write_text(HANDLERS + RAISES)
    return made


@pytest.fixture
def process(place, folder):
    """The command as processes, with the URL in their environment."""
    made = Command(folder, place.url)
    yield made
    made.close()


class Here(Command):
    """The same in this process."""

    def __init__(self, folder, url, monkeypatch, capsys):
        super().__init__(folder, url)
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def run(self, *args, stdin=b"", **more):
        """A command, from start to end."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        for name, value in {"RECOVERY_URL": self.url, **more}.items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        self._monkeypatch.setattr(sys, "argv", ["recovery", *map(str, args)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert not isinstance(code, str)
        return Ran(code, *self._capsys.readouterr())


@pytest.fixture
def command(place, folder, monkeypatch, capsys):
    """The command in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    yield Here(folder, place.url, monkeypatch, capsys)
    sys.modules.pop("work_of", None)


def told(canaries, *runs):
    """Which canaries were printed; the server's name for the role is no secret."""
    return canaries.in_what([text for ran in runs for text in (ran.out, ran.err)]) - {"user"}


def secret_line(canaries, message_id="a", **more):
    """A line of input with secrets in its payload."""
    return line(message_id, payload={"secret": canaries.payload, canaries.key: 1}, **more)


def test_what_goes_well(command, place):
    """None of the commands prints a payload or a result, but `explain` where it was asked for JSON."""
    canaries = place.canaries
    sent = command.run("send", "--as", "agent-a", stdin=secret_line(canaries))
    (ack,) = sent.json_lines()
    runs = [sent, command.run("migrate"), command.run("status"), command.run("status", "--json")]
    runs += [command.work("ok"), command.run("explain", ack["task_id"])]
    with Receiver.open(place.url):
        runs.append(command.run("deliver", "--to", place.url, "--drain"))
    assert [0] * len(runs) == [ran.code for ran in runs]
    assert set() == told(canaries, *runs)
    asked = command.run("explain", ack["task_id"], "--json")
    assert {"payload", "key"} == told(canaries, asked)


@pytest.mark.parametrize("function", FAILING)
def test_a_handler_that_tells(command, place, function):
    """A worker prints where a handler failed and never what it said; the database has it, for `explain`."""
    canaries = place.canaries
    command.send(secret_line(canaries))
    plain = command.work(function)
    with Queue.open(place.url) as queue:
        counts = queue.counts()
    assert (0, 1) == (plain.code, counts.open["pending"] + counts.ended["failed"])
    assert plain.out.split()[0] in STATES
    assert set() == told(canaries, plain)


def test_what_is_refused(command, place):
    """A line, a key, an option, an id: what is refused is not repeated, but for the id that somebody typed."""
    canaries = place.canaries
    lines = [
        f'{{"{canaries.payload}": 1}}',
        f'{{"message_id": "{canaries.payload}',
        secret_line(canaries, message_id=f"{canaries.reason}\0"),
        secret_line(canaries, kind=canaries.reason),
        secret_line(canaries, sender=canaries.reason),
        secret_line(canaries, deadline=canaries.reason),
        json.dumps({"message_id": "a", "deadline": 1, "payload": {canaries.key: "\ud800" + canaries.payload}}),
        canaries.payload,
    ]
    runs = [command.run("send", "--as", "agent-a", stdin=text) for text in lines]
    runs.append(command.run("send", "--as", "agent-a", stdin=f"{canaries.payload}".encode() + b"\xff"))
    runs.append(command.run("work", "--handler", "work_of:ok", "--once", "--owner", f"{canaries.reason}\n"))
    runs.append(command.run("work", "--handler", "work_of:ok", "--once", "--queue", f"{canaries.reason}\n"))
    assert set() == {ran.code for ran in runs} - {1, 2}
    assert set() == told(canaries, *runs)


@pytest.mark.parametrize("wreck", [name for name in WRECKS if name != "busy"])
def test_a_database_that_goes_wrong(command, place, wreck):
    """One sentence, and no secret in it."""
    command.send(secret_line(place.canaries))
    with WRECKS[wreck][0](place):
        runs = [
            command.run("send", "--as", "agent-a", stdin=secret_line(place.canaries, "b")),
            command.work("raises"),
            command.run("status"),
            command.run("migrate"),
        ]
    admit_nobody(place, closed=False)
    assert any(ran.code == 2 for ran in runs)
    assert all(len(ran.err.splitlines()) <= 1 for ran in runs), [ran.err for ran in runs]
    assert set() == told(place.canaries, *runs)


def test_credentials_that_are_wrong(command, place):
    """A password that is refused, a server that is not there, options that nobody knows: not one is repeated."""
    urls = wrong_urls(place)
    calls = [("status",), ("migrate",), ("send", "--as", "a"), ("deliver", "--to", place.url, "--once")]
    runs = [command.run(*arguments, RECOVERY_URL=url) for url in urls for arguments in calls]
    runs += [command.run("deliver", "--once", RECOVERY_RECEIVER_URL=url) for url in urls]
    assert {2} == {ran.code for ran in runs}
    assert {1} == {len(ran.err.splitlines()) for ran in runs}
    assert set() == told(place.canaries, *runs)


def wrong_urls(place):
    """URLs of this database with something wrong, and a secret in each."""
    url, canaries = sa.make_url(place.url), place.canaries
    if place.is_file:
        wrong = [url.update_query_dict({"password": canaries.password}), url.update_query_dict({canaries.option: "1"})]
    else:
        wrong = [url.set(password=f"{canaries.password}-not"), url.set(host="127.0.0.1", port=1)]
        wrong += [url.update_query_dict({"nonsense": canaries.option}), url.set(drivername="mysql")]
    return [one.render_as_string(hide_password=False) for one in wrong]


@pytest.mark.parametrize(
    "arguments", [("demo",), ("work", "--handler", "work_of:hangs", "--once")], ids=["demo", "work"]
)
def test_the_arguments_of_processes(process, place, arguments):
    """No process that the command starts has a password among its arguments, where everybody can read it.

    The demo's own arguments have its URL, since there is no other way to name it: here without a password, which is
    in PGPASSWORD.
    """
    url = sa.make_url(place.url)
    canaries = place.canaries
    process.send(secret_line(canaries))
    more = {} if place.is_file else {"PGPASSWORD": canaries.password}
    named = url._replace(password=None).render_as_string(hide_password=False)
    options = ("--url", named, "--receiver-url", named) if arguments == ("demo",) else ()
    started = process.start(*arguments, *options, **more)
    seen = []
    end = time.monotonic() + PATIENCE_SECONDS
    while started.poll() is None and time.monotonic() < end and not (process.folder / "started").exists():
        seen += command_lines()
        time.sleep(0.01)
    started.kill()
    ran = process.end(started)
    assert any("demo_worker" in text if arguments == ("demo",) else "work_of:hangs" in text for text in seen), ran.err
    assert set() == canaries.in_what(seen) - {"user"}
    assert set() == told(canaries, ran)


def test_what_a_torture_and_a_bench_keep(process, place, tmp_path):
    """Their reports, histories and pictures do not have the password of the URL, nor do they print it."""
    kept = tmp_path / "kept"
    torture = process.run("torture", "--url", place.url, "--minutes", "0.03", "--seed", "7", "--out", kept / "t")
    small = ("--processes", "1", "--batch", "1", "--threads", "1", "--seconds", "0.2", "--rounds", "1", "--cycles", "3")
    bench = process.run("bench", "contention", "--url", place.url, *small, "--quiet", "--out", kept / "b")
    assert [True, True] == [any((kept / name).rglob("*.json")) for name in ("t", "b")], (torture.err, bench.err)
    assert set() == told(place.canaries, torture, bench)
    assert set() == set(files_with(kept, place.canaries)) - {"user"}


def test_a_worker_that_tells_is_seen(process, place):
    """Planted: a handler that prints its payload to standard error is what this would look like."""
    (process.folder / "work_of.py").write_text("def prints(payload):\n    print(payload)\n")
    process.send(secret_line(place.canaries))
    assert {"payload", "key"} == told(place.canaries, process.work("prints"))
