"""How long to wait when there was nothing to do. Pure arithmetic."""

from __future__ import annotations

from typing import Final

FIRST_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 1.0


def idle_seconds(empty_answers: int) -> float:
    """The wait after so many empty answers in a row (from 1): doubling from 0.05 s, at most 1 s."""
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(max(empty_answers - 1, 0), 16)))
