"""Every broken build is noticed by the tests that stand for the promise it breaks; the whole one is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS

pytestmark = pytest.mark.mutants

ROOT = Path(__file__).parents[2]
PARTS = ("recovery", "migrations", "tests", "benchmarks")
FILES = ("pyproject.toml", "alembic.ini", "README.md")
FAILED = 1
"""pytest's exit code where tests ran and some failed. Any other one means that they did not run."""


@pytest.fixture
def build(tmp_path):
    """A copy of the project that may be broken."""
    for name in PARTS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "baselines"))
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def ran(build, tests):
    """Run tests of that build, up to the first failure."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=build, env=alone, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_build_is_noticed(build, mutant):
    """The named tests fail: pytest ran them, and says so. That they could not be run would be another exit code."""
    file = build / mutant.file
    text = file.read_text(encoding="utf-8")
    assert 1 == text.count(mutant.old), "the text that was to be broken is not there, or not only there"
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    done = ran(build, mutant.tests)
    assert FAILED == done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_whole_build_passes(build):
    """A copy in which nothing was broken passes a file that finds many of them: it is the library that is tested."""
    done = ran(build, ("tests/contract/test_fences.py", "tests/contract/test_receiver.py"))
    assert 0 == done.returncode, done.stdout[-3000:]
