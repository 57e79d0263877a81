"""Settings that are refused when they are made, and what a queue and a clock say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Backoff, ManualClock, Misconfigured
from recovery.settings import Settings

BAD: list[tuple[dict[str, Any], str]] = [
    ({"table_prefix": b"x"}, "table_prefix must be text"),
    ({"table_prefix": None}, "table_prefix must be text"),
    ({"clock": 1000.0}, "clock must be a ManualClock"),
    ({"clock": lambda: 1000.0}, "clock must be a ManualClock"),
    ({"allowed_sources": "agent-a"}, "never one bare text"),
    ({"allowed_sources": b"agent-a"}, "never one bare text"),
    ({"allowed_sources": iter(["agent-a"])}, "never one bare text"),
    ({"allowed_sources": ["agent-a", "a\0b"]}, "no control character"),
    ({"allowed_sources": [7]}, "must be a str"),
    ({"allowed_sources": ["x" * 129]}, "1 to 128 bytes"),
    ({"max_hops": True}, "max_hops must be an int"),
    ({"max_hops": -1}, "max_hops must be from 0"),
    ({"delivery_attempts": 0}, "delivery_attempts must be from 1"),
    ({"result_bytes_max": 64 * 1024 * 1024 + 1}, "result_bytes_max must be from 1"),
    ({"lease_seconds": 0}, "lease_seconds must be finite"),
    ({"delivery_lease_seconds": float("nan")}, "delivery_lease_seconds must be finite"),
    ({"busy_seconds": float("inf")}, "busy_seconds must be finite"),
    ({"backoff": "2"}, "backoff must be an int or a float"),
    ({"delivery_backoff": -1}, "delivery_backoff must be finite"),
]


@pytest.mark.parametrize(
    ("values", "said"), BAD, ids=[f"{number} {next(iter(one))}" for number, (one, _) in enumerate(BAD)]
)
def test_what_no_queue_can_be_made_with(values, said):
    """It is Misconfigured, and the sentence names the setting and its rule."""
    with pytest.raises(Misconfigured, match=said):
        Settings(**values)


@pytest.mark.parametrize("values", [{"jitter": 1}, {"jitter": None}, {"factor": 0.5}, {"cap_seconds": -1}], ids=str)
def test_what_no_backoff_can_be_made_with(values):
    """The same of a backoff."""
    with pytest.raises(Misconfigured, match=next(iter(values))):
        Backoff(1.0, **values)


def test_one_number_serves_tasks_and_deliveries():
    """A backoff and a lease are the deliveries' too, unless they have their own; a plain number is a fixed wait."""
    both = Settings(backoff=3, lease_seconds=7)
    assert (3.0, 3.0, 7.0) == (both.task_wait_seconds(5), both.delivery_wait_seconds(5), both.delivery_lease_seconds)
    own = Settings(backoff=3, delivery_backoff=Backoff(1, 2, 5), delivery_lease_seconds=9)
    assert [1.0, 2.0, 4.0, 5.0, 5.0] == [own.delivery_wait_seconds(n) for n in (1, 2, 3, 4, 1000)]
    assert (3.0, 9.0) == (own.task_wait_seconds(1), own.delivery_lease_seconds)


def test_a_clock_says_what_it_shows():
    """A manual clock's repr is how to make the same one."""
    assert "ManualClock(1000.5)" == repr(ManualClock(1000.5))
