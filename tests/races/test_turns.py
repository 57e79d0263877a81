"""Processes in the line at the door of a SQLite file: in order, killed, frozen, forked."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from recovery import AuthContext, Envelope, Queue, migrate
from recovery.backend import turns
from recovery.backend.turns import Turns
from tests.plugins.turns import places, until, until_standing

ROOT = Path(__file__).parents[2]
LONG_SECONDS = 60.0
"""Nobody waits so long: a take that used it all would hang the test."""
PROCESSES = 8
ROUNDS = 25

READY = "import sys\nimport turns\nturns.PATIENCE_SECONDS = 600.0\n"
ONE = READY + "one = turns.Turns(sys.argv[1])\none.take(600.0)\nsys.stdin.read()\n"
"""A process that stands in line until its standard input is closed."""
FORKED = READY + (
    "import os\none = turns.Turns(sys.argv[1])\none.take(600.0)\n"
    "if os.fork() == 0:\n"
    "    one.drop()\n    print(os.getpid(), flush=True)\n"
    "    sys.stdin.read()\n"
    "else:\n    os.wait()\n"
)
"""A process that has the turn, and a child of it that lives until standard input is closed."""
MANY = READY + (
    "import os\nfrom tests.plugins.turns import places\n"
    "path, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
    "one = turns.Turns(path)\n"
    "log = os.open(path + '-log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
    "for _ in range(rounds):\n"
    "    one.take(600.0)\n"
    "    os.write(log, f'{name} {len(places(path)) - 1}\\n'.encode())\n"
    "    one.drop()\n"
)
"""A process that takes many turns, and writes down in each who has it and how many others stand in line."""


@pytest.fixture
def start():
    """Starts a program as a process of its own; what is left of it is killed at the end."""
    with contextlib.ExitStack() as at_the_end:

        def started(program, *arguments):
            command = [sys.executable, "-c", program, *map(str, arguments)]
            # The module alone: all of the library would take a process half a second to import.
            alone = {**os.environ, "PYTHONPATH": str(Path(turns.__file__).parent)}
            process = subprocess.Popen(command, cwd=ROOT, env=alone, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            at_the_end.callback(process.__exit__, None, None, None)
            at_the_end.callback(process.kill)
            return process

        yield started


@pytest.fixture
def path(tmp_path):
    """Where a database would be."""
    return str(tmp_path / "queue.db")


@pytest.fixture
def mine(path):
    """This process's place in the line."""
    one = Turns(path)
    yield one
    one.close()


@pytest.fixture
def patient(monkeypatch):
    """Nobody passes anybody."""
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 600.0)


def test_nobody_writes_twice_while_another_waits(path, mine, patient, start):
    """Eight processes that come back at once: whoever had a turn while others stood in line has not the next one."""
    mine.take(LONG_SECONDS)
    processes = [start(MANY, path, name, ROUNDS) for name in range(PROCESSES)]
    until_standing(path, PROCESSES + 1)
    mine.drop()
    assert [0] * PROCESSES == [process.wait(LONG_SECONDS) for process in processes]
    granted = [line.split() for line in Path(f"{path}-log").read_text().splitlines()]
    assert PROCESSES * ROUNDS == len(granted)
    assert PROCESSES == len({name for name, _ in granted[:PROCESSES]})
    again = [
        number
        for number, ((name, others), (after, _)) in enumerate(itertools.pairwise(granted))
        if name == after and others != "0"
    ]
    assert [] == again


def test_a_killed_one_has_no_turn(path, mine, patient, start):
    """The kernel takes the place of a killed process back, at its turn or in the line."""
    first = start(ONE, path)
    until_standing(path, 1)
    second = start(ONE, path)
    until_standing(path, 2)
    for process in (second, first):
        process.kill()
        process.wait()
    assert mine.take(LONG_SECONDS) < LONG_SECONDS
    assert 1 == len(places(path))


def test_one_that_is_killed_while_we_wait(path, mine, patient, start):
    """Who waits for a process that is killed goes at once."""
    first = start(ONE, path)
    until_standing(path, 1)

    def kill():
        until_standing(path, 2)
        first.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    waited = mine.take(LONG_SECONDS)
    killing.join()
    assert 0.0 < waited < LONG_SECONDS


def test_a_frozen_holder_is_bounded(path, mine, patient, start):
    """Who waits for a stopped process waits no longer than it may."""
    first = start(ONE, path)
    until_standing(path, 1)
    first.send_signal(signal.SIGSTOP)
    assert 0.05 <= mine.take(0.05) < LONG_SECONDS


def test_a_frozen_one_in_line_is_passed(path, mine, start, monkeypatch):
    """A process stopped while it waited holds the others up once, for the patience; it goes on where it stood."""
    mine.take(LONG_SECONDS)
    other = start(ONE, path)
    until_standing(path, 2)
    other.send_signal(signal.SIGSTOP)
    mine.drop()
    assert turns.PATIENCE_SECONDS <= mine.take(LONG_SECONDS) < LONG_SECONDS
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 600.0)
    mine.drop()
    assert 0.0 == mine.take(LONG_SECONDS)
    other.send_signal(signal.SIGCONT)
    other.stdin.close()
    assert 0 == other.wait(LONG_SECONDS)


def test_a_child_of_a_killed_process(path, mine, patient, start):
    """A fork's child has nothing of the parent's turn: it drops none, and it keeps none alive."""
    parent = start(FORKED, path)
    child = int(parent.stdout.readline())
    assert 1 == len(places(path))
    parent.kill()
    parent.wait()
    assert mine.take(LONG_SECONDS) < LONG_SECONDS
    os.kill(child, 0)
    os.kill(child, signal.SIGKILL)


def test_our_own_child(path, mine):
    """In our own child the descriptor is closed, and it may stand in line by itself."""
    mine.take(LONG_SECONDS)
    before = mine._descriptor
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            closed = mine._descriptor == -1 and not Path(f"/proc/self/fd/{before}").exists()
            mine.drop()
            os._exit(0 if closed and len(places(path)) == 1 and mine.take(0.01) >= 0.01 else 1)
        os._exit(2)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    until(lambda: len(places(path)) == 1)
    mine.drop()
    assert [] == places(path)


def test_a_queue_beside_a_frozen_process(tmp_path, start):
    """A process that was stopped with its turn, but without the lock of the file, stops nobody's verbs."""
    path = tmp_path / "queue.db"
    migrate(f"sqlite:///{path}")
    first = start(ONE, path)
    until_standing(str(path), 1)
    first.send_signal(signal.SIGSTOP)
    with Queue.open(f"sqlite:///{path}", allowed_sources={"agent-a"}) as queue:
        for number in range(3):
            sent = Envelope(f"m-{number}", "agent-a", {"n": number}, deadline=4e9)
            assert not queue.receive(sent, AuthContext("agent-a")).duplicate
    assert 1 == len(places(str(path)))
