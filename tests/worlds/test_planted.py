"""Each planted fault of the product is found, by the fewest steps that show it."""

from __future__ import annotations

import pytest

from tests.worlds.exploring import Violation, explore
from tests.worlds.faults import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, machine_of, monkeypatch, tell) -> None:
    """The explorer stops at the promise that the fault breaks, and tells the shortest way there."""
    fault = FAULTS[name]
    fault.plant(monkeypatch)
    with pytest.raises(Violation) as caught:
        explore(machine_of(fault.world))
    tell(f"{name}: {caught.value}")
    assert (fault.steps, fault.last) == (len(caught.value.path), caught.value.path[-1])
