"""A disk that is filled up: all of its room is taken and given back, and what was mounted goes away again."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from types import SimpleNamespace

import pytest

from recovery import Misconfigured
from recovery.testing.torture import disk
from recovery.testing.torture.disk import FILLER, PIECES, fill, small_disk

ROOM_BYTES = PIECES[0] + 2 * PIECES[1] + 3


@pytest.fixture
def little_room():
    """No file of this process may become longer, as on a disk that has no more room than that."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("little_room")
def test_room_is_taken_to_the_last_byte_and_given_back(tmp_path, monkeypatch):
    """For as long as was asked for, by a file that nobody else may read."""
    seen = []

    def sleep(seconds):
        found = (tmp_path / FILLER).stat()
        seen.append((seconds, found.st_size, found.st_mode & 0o777))

    monkeypatch.setattr(time, "sleep", sleep)
    assert fill(tmp_path, 0.7)
    assert ([(0.7, ROOM_BYTES, 0o600)], []) == (seen, list(tmp_path.iterdir()))


@pytest.mark.usefixtures("little_room")
def test_an_interrupted_filling_gives_the_room_back(tmp_path, monkeypatch):
    """Whoever ends it in the middle leaves no full disk behind."""

    def sleep(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path, 1.0)
    assert [] == list(tmp_path.iterdir())


class System:
    """Stands for root on Linux: a C library, and a `mount` and an `umount` that write down how they were called."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.log = folder / "bin", folder / "log"
        self.folder.mkdir()
        for name in ("mount", "umount"):
            self.program(name, f'echo "{name} $*" >> {self.log}')
        self.refuses = 0
        monkeypatch.setenv("PATH", str(self.folder), prepend=":")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(unshare=self.unshare))
        monkeypatch.setattr(ctypes, "get_errno", lambda: 1)

    def program(self, name, script):
        """A program of that name, first on PATH."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def unshare(self, flags):
        """As Linux answers."""
        assert disk.CLONE_NEWNS == flags
        return self.refuses

    def calls(self):
        """What was mounted and unmounted, in order."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system on which nothing is really mounted."""
    return System(tmp_path, monkeypatch)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_what_is_mounted_is_seen_by_nobody_else_and_goes_away(system, error):
    """Private before anything is mounted, of a fixed size, for its owner alone; unmounted however it ended."""

    def work():
        with small_disk(system.folder):
            assert 2 == len(system.calls())
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    private, mounted, unmounted = system.calls()
    assert "mount --make-rprivate /" == private
    assert f"mount -t tmpfs -o size=64m,mode=0700 tmpfs {system.folder}" == mounted
    assert f"umount --lazy {system.folder}" == unmounted


def test_without_mounts_of_its_own_nothing_is_mounted(system):
    """Else everybody on the machine would see it; the reason is the system's."""
    system.refuses = -1
    with pytest.raises(Misconfigured, match=os.strerror(1)), small_disk(system.folder):
        pytest.fail("it began")
    assert [] == system.calls()


def test_a_mount_that_fails_is_said_in_its_own_words(system):
    """And the work does not begin on a disk that is not there."""
    system.program("mount", "echo 'no such thing' >&2; exit 32")
    with pytest.raises(Misconfigured, match=r"--full-disk: mount failed: no such thing$"), small_disk(system.folder):
        pytest.fail("it began")
    assert [] == system.calls()
