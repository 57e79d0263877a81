"""The timetable of faults: it follows from the seed, and from nothing else."""

from __future__ import annotations

import itertools
import random

from recovery.testing.torture.timetable import Timetable, chosen

RATES = {"kill": 1.2, "stop": 0.5, "crash": 0.0}


def timetable(seed):
    """One of that seed."""
    return Timetable(lambda kind: random.Random(f"{seed}:{kind}"), RATES)


def test_the_same_seed_plans_the_same_faults():
    """However often it is asked; another seed plans others."""
    at_once = timetable(1).due(60.0)
    often = timetable(1)
    assert at_once == [fault for tenth in range(601) for fault in often.due(tenth / 10)]
    assert at_once != timetable(2).due(60.0)


def test_faults_come_at_their_rates():
    """On average, with no long gap, each once, and none of a kind that is not wanted."""
    found = timetable(1).due(1000.0)
    counts = {kind: sum(fault.kind == kind for fault in found) for kind in RATES}
    assert 0 == counts["crash"]
    assert 0.9 < counts["kill"] / 1200 < 1.2
    assert 0.9 < counts["stop"] / 500 < 1.2
    kills = [fault.at for fault in found if fault.kind == "kill"]
    assert max(later - earlier for earlier, later in itertools.pairwise(kills)) <= 3.0 / 1.2
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_another_takes_the_place_of_who_is_not_there():
    """The next one in turn, all around; nobody where nobody fits."""
    everybody = ["a", "b", "c", "d"]
    assert "c" == chosen(everybody, 0.5, lambda _: True)
    assert "d" == chosen(everybody, 0.5, lambda one: one != "c")
    assert "b" == chosen(everybody, 0.99, lambda one: one == "b")
    assert None is chosen(everybody, 0.5, lambda _: False)
