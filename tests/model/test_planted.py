from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Difference
from tests.model.planted import PLANTS
from tests.model.rules import QueueMachine


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant, worlds, monkeypatch):
    """The small profile finds each of them; how to make it small is of no interest here."""
    small = settings(settings.get_profile("model-ci"), phases=[Phase.generate], report_multiple_bugs=False)
    removed = plant(monkeypatch, worlds)
    try:
        with pytest.raises(Difference):
            run_state_machine_as_test(type("Machine", (QueueMachine,), {"worlds": worlds}), settings=small)
    finally:
        if removed is not None:
            removed()
