"""Differences that the machine found, each in its smallest form."""

from __future__ import annotations

import pytest

from tests.model.rules import QueueMachine
from tests.model.values import KNOBS, authority, envelope


@pytest.fixture
def compared(worlds):
    """Empty databases and an empty model."""
    machine = type("Machine", (QueueMachine,), {"worlds": worlds})()
    machine.start(KNOBS[0], held=False)
    yield machine
    machine.teardown()


def test_an_empty_error_text_is_not_a_receipt(compared):
    """What was not delivered is never noted as stored, also where nothing was said; SQLite's journal says it is."""
    compared.run("receive", envelope("m-1", {}, 0.0, {}), authority("agent-a"))
    delivery = compared.run("claim_reply", "dispatcher-1")
    compared.run("settle", delivery, delivered=False, error="")
