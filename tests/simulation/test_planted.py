"""Each planted fault of the product is met by a seed, and that seed shows it again, event for event."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import planting
from tests.simulation.planting import PLANTS
from tests.simulation.running import VARIABLE, Wrong, simulate

ROOT = Path(__file__).resolve().parents[2]
FIRST_SEEDS = range(1, 13)
FOUND = {
    "the fence is not compared": "held it until",
    "a lease that ends now still holds": "its lease or its deadline was over",
    "the deadline is not checked": "its lease or its deadline was over",
    "a cancelled task has no reply": "is cancelled and has 0 replies",
    "an attempt is not counted": "after 0 attempts",
    "a fence is not raised": "was claimed under fences [1, 1]",
    "release gives the attempt back": "and was claimed 4 times",
    "a receipt is not deduplicated": "receipts and effects do not belong together",
    "reconcile revives what has failed": "is still running",
    "a finish that is asked again is refused": "'Fenced': it is stored",
    "a claim is repeated blindly": "nobody was told",
    "the answer comes before the commit": "was handed out before",
    "a failure is tried again at once": "it was to wait until",
    "a collision is a duplicate": "a lie was not refused",
}
"""Faults, each with the words of the rule that it breaks."""


def _failing(on_sqlite):
    """What the first seed came to in which a promise is broken."""
    for seed in FIRST_SEEDS:
        outcome = simulate(on_sqlite(), seed)
        if outcome.violations:
            return outcome
    return pytest.fail("no seed met the fault")


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_met(name, on_sqlite, monkeypatch, tell) -> None:
    """One of the first seeds breaks the promise, and says which seed that was."""
    PLANTS[name](monkeypatch)
    met = _failing(on_sqlite)
    assert FOUND[name] in "\n".join(met.violations)
    with pytest.raises(Wrong, match=f"{VARIABLE}={met.seed} pytest"):
        met.checked()
    tell(f"{name}: seed {met.seed}, history {met.digest}: {met.violations[0]}")


def test_a_seed_replays(on_sqlite, monkeypatch) -> None:
    """A second and a third run of a seed that failed are the same history, to the letter."""
    PLANTS["the fence is not compared"](monkeypatch)
    met = _failing(on_sqlite)
    for _ in range(2):
        again = simulate(on_sqlite(), met.seed)
        assert (met.trace, met.violations) == (again.trace, again.violations)


def test_a_difference_between_the_backends_is_seen(on_sqlite, on_postgresql, monkeypatch) -> None:
    """A fault in what only one of them runs leads to another history there, from one event on."""
    PLANTS["a finish that is asked again is refused"](monkeypatch)
    met = _failing(on_sqlite)
    there = simulate(on_postgresql(), met.seed)
    assert [] == there.violations
    assert met.trace != there.trace


def test_the_printed_command_shows_the_same_history(on_sqlite, monkeypatch) -> None:
    """In other processes, whose sets and dicts are in another order, the variable leads to the very same failure."""
    name = "a lease that ends now still holds"
    with monkeypatch.context() as planted:
        PLANTS[name](planted)
        met = _failing(on_sqlite)
    for hash_seed in ("1", "2"):
        ended = _run({VARIABLE: str(met.seed), planting.VARIABLE: name, "PYTHONHASHSEED": hash_seed})
        assert pytest.ExitCode.TESTS_FAILED == ended.returncode, ended.stdout
        assert f"seed {met.seed}, history {met.digest}; again: {VARIABLE}={met.seed} pytest" in ended.stdout
        assert all(one in ended.stdout for one in met.violations)


def _run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The tests of one seed on SQLite, in a process of their own."""
    chosen = ["tests/simulation/test_simulation.py", "-k", "every_promise"]
    options = ["-p", "tests.simulation.planting", "-p", "no:cacheprovider", "-q"]
    command = [sys.executable, "-m", "pytest", *options, *chosen]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
