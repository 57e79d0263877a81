"""Each planted fault of the product is found by a permutation."""

from __future__ import annotations

import pytest

from tests.permutations.faults import FAULTS
from tests.permutations.judging import Broken


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, court, new_court, monkeypatch, tell) -> None:
    """The scene passes as the product is; with the fault it is broken, and if it takes a race, only by a race."""
    fault = FAULTS[name]
    if fault.settings:
        court = new_court(*fault.settings)
    court.judge(fault.scene)
    fault.plant(monkeypatch)
    with pytest.raises(Broken) as caught:
        court.judge(fault.scene)
    tell(f"{name}: {fault.scene}: {' '.join(caught.value.path)}")
    assert fault.said in str(caught.value)
    assert fault.alone is caught.value.whole
