"""Wrong clocks: one process sees another time, with libfaketime also in C; its waits and its history stay right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recovery.testing.torture import clocks

ROOT = Path(__file__).parents[2]
HOUR = 3600.0
LIFE = """
import json, os, sys, time
from pathlib import Path
from recovery.testing.history import History
from recovery.testing.torture import clocks
from recovery.testing.torture.company import forked
if sys.argv[1] == "faked":
    clocks.begin_again()
def be():
    history = History(Path(sys.argv[2]), "life", clocks.unmoved())
    clocks.shift(float(sys.argv[3]))
    asleep = time.monotonic()
    time.sleep(0.1)
    history.invoke("claim", python=time.time(), c=time.clock_gettime(0), slept=time.monotonic() - asleep)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(forked(be), 0)[1])
server = clocks.without(os.environ)
print(json.dumps({"code": code, "parent": time.time(), "faked": clocks.is_faked(), "server": server}))
"""


def lived(how, tmp_path, seconds):
    """What a parent says whose child shifted its clock, and what stands in the child's history."""
    history = tmp_path / f"{seconds}.jsonl"
    command = [sys.executable, "-c", LIFE, how, str(history), str(seconds)]
    environment = {**clocks.without(os.environ), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), json.loads(history.read_text())


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_python_alone_sees_another_time(tmp_path, seconds):
    """Without libfaketime: Python's clock is wrong, C's is not; the parent's and the history's are right."""
    told, line = lived("alone", tmp_path, seconds)
    assert (0, False) == (told["code"], told["faked"])
    assert pytest.approx(seconds, abs=60) == line["said"]["python"] - line["at"]
    assert pytest.approx(0, abs=60) == line["said"]["c"] - line["at"]
    assert pytest.approx(time.time(), abs=60) == line["at"] == pytest.approx(told["parent"], abs=60)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_c_sees_it_too_where_libfaketime_is(tmp_path, seconds):
    """Then both are wrong, a sleep is as long as ever, and a server that is started keeps the host's clock."""
    told, line = lived("faked", tmp_path, seconds)
    faked = clocks.library() is not None
    assert (0, faked) == (told["code"], told["faked"])
    assert pytest.approx(seconds, abs=60) == line["said"]["python"] - line["at"]
    assert pytest.approx(seconds if faked else 0, abs=60) == line["said"]["c"] - line["at"]
    assert pytest.approx(time.time(), abs=60) == line["at"] == pytest.approx(told["parent"], abs=60)
    assert 0.05 < line["said"]["slept"] < 30
    assert not {name for name in told["server"] if name.startswith("FAKETIME")}
    assert "faketime" not in told["server"].get("LD_PRELOAD", "")


def test_without_the_library_a_command_goes_on(monkeypatch):
    """It does not begin again, and nothing is faked."""
    monkeypatch.setattr(clocks, "LIBRARIES", ("/nowhere/libfaketime.so.1",))
    clocks.begin_again()
    assert clocks.library() is None
    assert not clocks.is_faked({})
