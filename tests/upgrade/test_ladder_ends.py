"""How `migrate` ends where the ladder is missing, its result cannot be looked at, or something else goes wrong."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from recovery import Busy, CommitUnknown, Misconfigured, Queue, Unavailable, migrate

module = importlib.import_module("recovery.migrate")


@pytest.mark.parametrize("error", [Busy, Unavailable])
def test_tables_that_nobody_could_look_at_may_be_there(empty_url, monkeypatch, error):
    """They were upgraded, so that "nothing was changed" would be a lie; to run it again is harmless."""

    def check(*_):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(module, "check", check)
        with pytest.raises(CommitUnknown, match="run: recovery migrate") as raised:
            migrate(empty_url)
    assert isinstance(raised.value.__cause__, error)
    with Queue.open(empty_url) as queue:
        assert 0 == queue.counts().received
    assert module.VERSION == migrate(empty_url)


def test_a_fault_of_a_step_is_raised_as_it_is(empty_url, monkeypatch):
    """What no database and no file said is not given one of their names."""

    def fail(*_, **__):
        raise ZeroDivisionError("in a step")

    monkeypatch.setattr(module, "_command", fail)
    with pytest.raises(ZeroDivisionError, match="in a step"):
        migrate(empty_url)


@pytest.mark.parametrize("place", ["inside", "beside"])
def test_the_ladder_is_inside_the_package_or_beside_it(tmp_path, monkeypatch, place):
    """As in a wheel, or as in a checkout; a folder of that name with no ladder in it is none."""
    package = tmp_path / "recovery"
    package.mkdir()
    monkeypatch.setattr(module, "__file__", str(package / "migrate.py"))
    with pytest.raises(Misconfigured, match="install recovery again"):
        module.ladder()
    folder: Path = (package if place == "inside" else tmp_path) / "migrations"
    folder.mkdir()
    with pytest.raises(Misconfigured, match="install recovery again"):
        module.ladder()
    (folder / "env.py").touch()
    assert folder == module.ladder()
