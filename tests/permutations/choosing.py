"""How much is run: all pairs under plain settings and some under each, or everything where the environment says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import pytest

VARIABLE: Final = "RECOVERY_PERMUTATIONS"

LEVELS: Final = tuple(
    (f"default_transaction_isolation = {level}",)
    for level in ("read uncommitted", "read committed", "repeatable read", "serializable")
)
PLANS: Final = (
    ("enable_seqscan = off",),
    ("enable_indexscan = off", "enable_bitmapscan = off", "enable_indexonlyscan = off"),
    ("enable_nestloop = off",),
    ("enable_hashjoin = off", "enable_mergejoin = off"),
    ("plan_cache_mode = force_generic_plan",),
)


def is_full(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether every pair is run at every level and under every plan, with every statement as a step."""
    asked = environment.get(VARIABLE, "short")
    if asked not in ("short", "full"):
        raise pytest.UsageError(f"{VARIABLE} is short or full.")
    return asked == "full"


def settings(*, full: bool) -> list[tuple[str, ...]]:
    """What the database says, one after the other: each level and each plan, or each level with each plan."""
    if full:
        return [(*level, *plan) for level in LEVELS for plan in ((), *PLANS)]
    return [*LEVELS, *PLANS]
