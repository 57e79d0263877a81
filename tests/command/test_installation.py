"""What a command says where a part of the installation, or of the system, is missing: one sentence and exit 2."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from recovery import Misconfigured
from recovery.__main__ import main
from recovery.cli import benching, options, torture


@pytest.fixture
def ended(monkeypatch, capsys):
    """Runs a command, and returns its exit code and what it wrote to standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["recovery", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not out
        return ended.value.code, err

    return run


@pytest.mark.parametrize("missing", ["typer", "rich", "click"])
def test_without_the_extra_it_is_named(monkeypatch, ended, missing):
    """The command's library is an extra, and so is what that one needs: whichever it is that is not there."""
    monkeypatch.delitem(sys.modules, "recovery.cli.app", raising=False)
    block(monkeypatch, "typer", missing)
    assert (2, "the command needs an extra: pip install 'recovery[cli]'\n") == ended("status")


def test_a_module_of_ours_that_is_missing_is_a_fault(monkeypatch):
    """No extra brings it, so that no sentence about an extra may hide it."""
    monkeypatch.delitem(sys.modules, "recovery.cli.app", raising=False)
    block(monkeypatch, "recovery.cli.looking", "recovery.cli.looking")
    monkeypatch.setattr(sys, "argv", ["recovery", "status"])
    with pytest.raises(ModuleNotFoundError, match=r"recovery\.cli\.looking"):
        main()


def block(monkeypatch, module, missing):
    """Let the import of a module fail as it does where `missing`, it or one that it needs, is not installed."""

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == module:
                raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    for name in list(sys.modules):
        if name == module or name.startswith(f"{module}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])


def test_without_the_benchmarks_there_is_a_sentence(monkeypatch, ended):
    """Neither inside the package nor beside it."""
    monkeypatch.setattr(benching, "PLACES", ("recovery.nowhere", "recovery_nowhere"))
    code, err = ended("bench", "contention")
    assert (2, True) == (code, err.startswith("recovery: the benchmarks are missing"))


def test_a_system_without_fork_is_not_tortured(monkeypatch, tmp_path):
    """It is refused before anything is made or started."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(Misconfigured, match="fork"):
        torture.torture(f"sqlite:///{tmp_path}/mine.db", embedded=False, container=None, full_disk=False)
    assert [] == list(tmp_path.iterdir())


def test_output_that_somebody_replaced_is_left_alone(monkeypatch):
    """A stream that cannot be told how to escape is written to as it is."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    options.printable_anywhere()
    options.out("ä")
    assert "ä\n" == stream.getvalue()


@pytest.mark.parametrize("arguments", [(), ("one", "two"), ("no folder",)])
def test_the_example_wants_one_folder(arguments):
    """Anything else is told how to call it, and writes no request."""
    command = [sys.executable, "-m", "recovery.examples.check_files", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (1, "", True) == (ran.returncode, ran.stdout, ran.stderr.startswith("name one folder that exists"))
