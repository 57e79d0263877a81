"""Where the interpreter has less to offer: no encoder in C, and functions that do not say what they take."""

from __future__ import annotations

import pytest

from recovery import canonical
from recovery.handlers import load


@pytest.mark.parametrize("value", [{}, {"b": 1.5, "a": "ä\u2028\0", "c": None, "d": True}, {"z": -0.0, "é": 1e300}])
def test_without_the_encoder_in_c_the_text_is_the_same(monkeypatch, value):
    """A fingerprint must not depend on how the interpreter was built."""
    quick = canonical.canonical_flat(value)
    monkeypatch.setattr(canonical, "_FLAT", None)
    assert canonical.canonical_json(value) == quick == canonical.canonical_flat(value)


def test_a_handler_written_in_c_is_given_the_payload():
    """It cannot be asked what it takes, and never gets the claim."""

    class Claim:
        payload = ("b", "a", "c")

    handler = load("builtins:max")
    assert "c" == handler(Claim())  # type: ignore[arg-type] # it looks at the payload alone
