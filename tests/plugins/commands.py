"""Fixtures: the `recovery` command as real processes, in a folder and with databases of a test's own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import Counts, Queue

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
HANDLERS = """
import asyncio, os, signal, sys, time
from pathlib import Path
from recovery.handlers import Permanent

def ok(payload):
    print("printed by the handler")
    return payload

def permanent(payload):
    raise Permanent(payload["secret"])

def bad_text(payload):
    raise ValueError("nul \\0 half \\ud800 escape \\x1b[31m line\\nfeed " + payload.get("secret", ""))

def exits(payload):
    sys.exit(3)

def not_json(payload):
    return object()

def too_big(payload):
    return "x" * (1024 * 1024)

async def asynchronous(payload):
    await asyncio.sleep(0)
    return {"async": payload}

async def cancels_itself(payload):
    raise asyncio.CancelledError

def both(payload, *, claim):
    return [payload, claim.attempt, claim.fence]

def hangs(payload):
    Path("started").touch()
    time.sleep(60)

async def hangs_in_a_callback(payload):
    def block():
        Path("started").touch()
        time.sleep(60)
    asyncio.get_running_loop().call_soon(block)
    await asyncio.sleep(60)

def swallows_the_signal(payload):
    Path("started").touch()
    try:
        time.sleep(60)
    except BaseException as error:
        raise RuntimeError("translated") from error

def will_not_end(payload):
    Path("started").touch()
    try:
        time.sleep(60)
    finally:
        Path("first").touch()
        time.sleep(60)

def longer_than_the_lease(claim):
    Path("started").touch()
    end = time.monotonic() + float(os.environ.get("SECONDS", "1.6"))
    while time.monotonic() < end and not Path("go").exists():
        time.sleep(0.02)
    return claim.attempt

def database_error(payload):
    import sqlite3
    raise sqlite3.IntegrityError("the row has " + payload["secret"])

class Asked:
    def __call__(self, payload):
        return "asked"

    def method(self, payload):
        return "method"

asked = Asked()
"""


def pytest_configure(config: pytest.Config) -> None:
    """Whoever starts the tests in the background has Ctrl-C ignored, and every process that they start would be too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def line(message_id: str, **more: Any) -> str:
    """One good line of input, with what a test wants to be different."""
    return json.dumps({"message_id": message_id, "deadline": 4e9, "payload": {"n": 1}, **more})


def wait_for(what: Callable[[], object]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int | None
    out: str
    err: str

    def json_lines(self) -> list[Any]:
        """Each line of standard output, decoded."""
        return [json.loads(text) for text in self.out.splitlines()]


class Command:
    """Runs the command in its own folder, on a migrated queue, with a handler module `work_of` at hand."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *args: object, module: str = "recovery", **more: Any) -> subprocess.Popen[bytes]:
        """A running command; capital keyword arguments are environment variables, others go to Popen."""
        variables = {name: value for name, value in more.items() if name.isupper()}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, args)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RECOVERY_URL": self.url, **variables},
            **{**pipes, **{name: value for name, value in more.items() if not name.isupper()}},
        )
        self._started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes], stdin: bytes | str = b"") -> Ran:
        """Wait for a command's end."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = process.communicate(given if process.stdin else None, timeout=PATIENCE_SECONDS)
        return Ran(process.returncode, (out or b"").decode(), (err or b"").decode())

    def run(self, *args: object, stdin: bytes | str = b"", **more: Any) -> Ran:
        """A command, from start to end."""
        return self.end(self.start(*args, **more), stdin)

    def send(self, *lines: str) -> list[str]:
        """Store good messages as agent-a; their task ids."""
        ran = self.run("send", "--as", "agent-a", stdin="\n".join(lines))
        assert (0, "") == (ran.code, ran.err)
        return [ack["task_id"] for ack in ran.json_lines()]

    def work(self, function: str, *args: object, **more: Any) -> Ran:
        """`recovery work` with one of the handlers of HANDLERS, for one task."""
        return self.run("work", "--handler", f"work_of:{function}", "--once", *args, **more)

    def working(self, function: str, *args: object, **more: Any) -> subprocess.Popen[bytes]:
        """A worker that has just called a handler which touches the file `started`."""
        process = self.start("work", "--handler", f"work_of:{function}", *args, **more)
        wait_for((self.folder / "started").exists)
        return process

    def counts(self) -> Counts:
        """The four facts, by the library."""
        with Queue.open(self.url) as queue:
            counts: Counts = queue.counts()
        return counts

    def close(self) -> None:
        """End what a failed test left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.wait()


@pytest.fixture
def command(database_url: str, tmp_path: Path) -> Iterator[Command]:
    """The command on a migrated queue."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "work_of.py").write_text(HANDLERS)
    made = Command(folder, database_url)
    yield made
    made.close()


@pytest.fixture
def receiver_url(new_migrated: Callable[[], str]) -> str:
    """The URL of a receiver's migrated database."""
    return new_migrated()


def with_password(url: str, password: str) -> str:
    """The URL with another password; a SQLite URL has none, and gets an option that is refused."""
    parsed = sa.make_url(url)
    if parsed.host is None:
        return f"{url}?password={password}"
    return parsed.set(password=password).render_as_string(hide_password=False)
