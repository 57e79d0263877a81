"""The table of refusals finds what it is for: a rule that is not kept, and a refusal that does not say enough."""

from __future__ import annotations

import pytest

from recovery import InvalidEnvelope, ManualClock, accepting, admission, migrate
from tests.hostile.judging import wrong_envelopes, wrong_senders
from tests.hostile.refused_values import ENVELOPES, SENDER
from tests.hostile.ways import Way


@pytest.fixture
def way(tmp_path):
    """A queue on a file of its own."""
    url = f"sqlite:///{tmp_path}/queue.db"
    migrate(url)
    made = Way("queue", url, allowed_sources={SENDER}, clock=ManualClock(1000.0))
    yield made
    made.end()


def says_nothing(value):
    """An error that is none of ours."""
    raise ValueError("no")


def names_another(value):
    """A refusal that names another field."""
    raise InvalidEnvelope("hops is wrong.", field="hops")


def tells_no_limit(field, bytes_max):
    """A refusal without its limit."""
    return InvalidEnvelope(f"{field} is too large.", field=field)


PLANTS = {
    "eleven attempts": (admission, "ATTEMPTS_MAX", 11, "max_attempts", {"above"}),
    "any deadline": (admission, "checked_deadline", lambda value: 4e9, "deadline", {"NaN", "True", "naive"}),
    "another error": (admission, "checked_deadline", says_nothing, "deadline", {"NaN", "True", "naive"}),
    "another field": (admission, "checked_deadline", names_another, "deadline", {"NaN", "True", "naive"}),
    "no limit": (accepting, "_too_large", tells_no_limit, "payload", {"65,537 bytes", "10 MB"}),
    "a value more": (accepting, "VALUES_MAX", 10_001, "payload", {"10,001 values in a list"}),
    "a level more": (accepting, "DEPTH_MAX", 17, "payload", {"17 deep"}),
    "any size": (accepting, "PAYLOAD_BYTES_MAX", 10**9, "payload", {"65,537 bytes", "10 MB"}),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=[*PLANTS])
def test_a_rule_that_is_not_kept(way, monkeypatch, plant):
    """Each fault is found by the rows of its rule, and by every verb."""
    module, name, instead, field, rules = plant
    rows = [row for row in ENVELOPES if row.field == field]
    assert {} == wrong_envelopes(way, rows)
    monkeypatch.setattr(module, name, instead)
    found = wrong_envelopes(way, rows)
    assert {f"{field}: {rule}" for rule in rules} <= {rule for rule, _ in found}
    assert "receive" in {verb for _, verb in found}


def test_a_sender_that_is_not_asked(way, monkeypatch):
    """Authority that is taken from the envelope itself."""
    assert {} == wrong_senders(way)
    monkeypatch.setattr(admission, "_authority", lambda envelope, auth, settings: SENDER)
    assert {"no AuthContext", "not allowed", "not the sender"} <= {rule for rule, _ in wrong_senders(way)}
