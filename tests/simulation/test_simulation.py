"""Seeded simulations: whatever is lost, repeated, late or dead on the way, every promise is kept in the end."""

from __future__ import annotations

import os

import pytest

from tests.simulation.running import RUNS_VARIABLE, VARIABLE, seeds, simulate

SEEDS = seeds(os.environ)
COMPARED = 3
"""How many of the seeds run on both backends, unless more are asked for."""
MET = {
    ("receive", False),
    ("receive", True),
    ("receive", "PayloadCollision"),
    ("receive", "Died"),
    ("claim", "CommitUnknown"),
    ("claim", "Died"),
    ("finish", None),
    ("finish", "Fenced"),
    ("fail", "pending"),
    ("fail", "failed"),
    ("fail", "Fenced"),
    ("give up", "failed"),
    ("release", "pending"),
    ("release", "failed"),
    ("renew", "Fenced"),
    ("cancel", True),
    ("cancel", False),
    ("accept", False),
    ("accept", True),
    ("accept", "Died"),
    ("settle delivered", "sent"),
    ("settle delivered", "Fenced"),
    ("settle lost", "pending"),
    ("settle lost", "dead"),
    ("settle lost", "CommitUnknown"),
    ("reconcile", "Died"),
    ("dies in between", None),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept(seed, on_sqlite, tell) -> None:
    """Senders, workers, dispatchers and a receiver over a bad network, with crashes, and then in peace."""
    outcome = simulate(on_sqlite(), seed).checked()
    tell(str(outcome))


@pytest.mark.parametrize("seed", SEEDS if {VARIABLE, RUNS_VARIABLE} & os.environ.keys() else SEEDS[:COMPARED])
def test_both_backends_have_the_same_history(seed, on_sqlite, on_postgresql) -> None:
    """One seed is one history: each answer, error and lease is the same on PostgreSQL as on SQLite."""
    here, there = simulate(on_sqlite(), seed), simulate(on_postgresql(), seed)
    assert here.trace == there.trace
    assert [] == there.violations


def test_the_first_seeds_meet_what_can_go_wrong(on_sqlite) -> None:
    """A simulation in which nothing is lost, late or refused would keep every promise, and show nothing."""
    histories = [simulate(on_sqlite(), seed).history for seed in range(1, 7)]
    met = {(event.verb, event.answer) for history in histories for event in history}
    kinds = {(verb.split(" m")[0].removesuffix(" x").removesuffix(" y"), answer) for verb, answer in met}
    assert set() == MET - kinds


def test_another_seed_is_another_history(on_sqlite) -> None:
    """A short name that were the same for all would compare nothing."""
    assert simulate(on_sqlite(), 1).digest != simulate(on_sqlite(), 2).digest


def test_the_environment_names_the_seeds() -> None:
    """One, or so many, or the first few; what is no number is refused."""
    assert [17] == seeds({"RECOVERY_SIMULATION_SEED": "17"})
    assert [1, 2] == seeds({"RECOVERY_SIMULATION_RUNS": "2"})
    assert list(range(1, 9)) == seeds({})
    with pytest.raises(pytest.UsageError, match="RECOVERY_SIMULATION_SEED"):
        seeds({"RECOVERY_SIMULATION_SEED": "a"})
