"""Wrong clocks in C, as far as that can be seen without libfaketime: how a command begins again, and what it leaves."""

from __future__ import annotations

import os
import select
import sys
import time

import pytest

from recovery.testing.torture import clocks

LIBRARY, OTHER = "/usr/lib/faketime/libfaketime.so.1", "/usr/lib/other.so"


@pytest.fixture
def faked(monkeypatch):
    """A process that was started with libfaketime, by its environment."""
    monkeypatch.setenv(clocks.PRELOAD, f"{LIBRARY} {OTHER}")
    monkeypatch.setenv(clocks.SHIFT, "+0")
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setattr(time, "sleep", time.sleep)
    monkeypatch.setattr(time, "time", time.time)


class Anew(Exception):
    """The process would be another one now."""


def test_the_very_command_begins_again(tmp_path, monkeypatch):
    """With its own arguments, beside what is loaded already, and with a clock that is right so far."""
    found = tmp_path / "libfaketime.so.1"
    found.touch()
    monkeypatch.setattr(clocks, "LIBRARIES", (str(tmp_path / "*.nothing"), str(tmp_path / "libfaketime.so.*")))
    monkeypatch.setenv(clocks.PRELOAD, OTHER)
    monkeypatch.delenv(clocks.SHIFT, raising=False)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "recovery", "torture", "--minutes", "1"])
    begun = []

    def execve(*given):
        begun.append(given)
        raise Anew

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(Anew):
        clocks.begin_again()
    ((program, arguments, environment),) = begun
    assert (sys.executable, [sys.executable, "-m", "recovery", "torture", "--minutes", "1"]) == (program, arguments)
    assert (f"{found} {OTHER}", "+0") == (environment[clocks.PRELOAD], environment[clocks.SHIFT])
    assert clocks.BESIDE.items() <= environment.items()
    assert clocks.is_faked(environment)


@pytest.mark.usefixtures("faked")
def test_a_command_that_has_begun_again_goes_on(monkeypatch):
    """It does not do so for ever, and from then on a sleep does not look at the clock."""
    monkeypatch.setattr(os, "execve", None)
    slept = []
    monkeypatch.setattr(select, "select", lambda *given: slept.append(given))
    clocks.begin_again()
    time.sleep(7.5)
    assert [([], [], [], 7.5)] == slept


@pytest.mark.usefixtures("faked")
@pytest.mark.parametrize(("seconds", "said"), [(3600.0, "+3600"), (-3600.0, "-3600"), (0.5, "+0.5")])
def test_a_shift_is_told_to_the_library(seconds, said):
    """And not done a second time to Python's clock."""
    before = time.time
    clocks.shift(seconds)
    assert (said, before) == (os.environ[clocks.SHIFT], time.time)


@pytest.mark.usefixtures("faked")
def test_the_host_clock_is_seen_through_a_shift(monkeypatch):
    """What is noted in a history is right, whatever the clock says since."""
    unmoved, before = clocks.unmoved(), time.time()
    monkeypatch.setattr(time, "time", lambda: before + 3600.0)
    assert pytest.approx(before, abs=60) == unmoved()


@pytest.mark.usefixtures("faked")
def test_what_is_no_actor_keeps_the_host_clock():
    """A server that is started has neither the library nor its settings, and everything else."""
    left = clocks.without(os.environ)
    assert (OTHER, False) == (left[clocks.PRELOAD], any(name.startswith("FAKETIME") for name in left))
    assert left["PATH"] == os.environ["PATH"]
    assert clocks.is_faked()
    assert not clocks.is_faked(left)
