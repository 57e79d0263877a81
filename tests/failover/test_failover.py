"""A primary is killed for good under load, and its standby takes its place: nothing that was acknowledged is lost."""

from __future__ import annotations

import os

import pytest

from recovery.testing.torture.report import facts, violations
from tests.failover.figures import summary
from tests.failover.rounds import run
from tests.failover.servers import ASYNCHRONOUS, LENIENT, STRICT, pair_of_servers

ROUNDS = int(os.environ.get("RECOVERY_FAILOVER_ROUNDS", "3"))
SEED = int(os.environ.get("RECOVERY_FAILOVER_SEED", "1"))


@pytest.mark.parametrize("mode", [LENIENT, STRICT])
def test_nothing_acknowledged_is_lost(mode, tmp_path, tell):
    """With a synchronous standby: no rule is broken, every doubt is one of its two outcomes, all work ends.

    In every second round the standby is cut off first, so that there are COMMITs that wait for it in vain.
    """
    with pair_of_servers(mode) as pair:
        outcome, rounds = run(pair, ROUNDS, tmp_path, lambda _: None, seed=SEED)
    for line in summary(f"failover, {mode}", outcome, rounds):
        tell(line)
    report = facts(outcome)
    assert [] == [str(one) for one in violations(outcome)]
    assert (ROUNDS, ROUNDS, 0, 0) == (len(rounds), report["crashes"], report["lost"], report["extra_effects"])
    assert min(report[name] for name in ("acknowledged", "unknown_done", "unknown_not_done")) > 0


def test_without_a_synchronous_standby_an_acknowledgement_may_be_lost(tmp_path, tell):
    """The same with a standby that nobody waits for, and that is behind when it is promoted: the checker says so."""
    with pair_of_servers(ASYNCHRONOUS) as pair:
        outcome, rounds = run(pair, 1, tmp_path, lambda _: None, seed=SEED, held_back=lambda _: True)
    for line in summary("failover, asynchronous", outcome, rounds):
        tell(line)
    assert facts(outcome)["lost"] > 0
    assert "acknowledged is stored" in {one.rule for one in violations(outcome)}
