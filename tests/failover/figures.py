"""What a client saw of each failover: how long nothing was acknowledged, and what it was told meanwhile."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recovery.testing.history import FAIL, OK, UNKNOWN
from recovery.testing.torture.report import facts
from recovery.testing.torture.run import Outcome
from tests.failover.rounds import Round

NOT_HEARD = ("Unavailable", "CommitUnknown")
TOLD = ("acknowledged", "lost", "extra_effects", "operations", "unknown", "unknown_done", "unknown_not_done")


@dataclass(frozen=True)
class Switch:
    """A round in seconds from the kill on, as its clients saw it.

    Until the other server took writes, until a new message that was sent later was acknowledged, and until the killed
    server followed. `errors` counts what verbs raised meanwhile.
    """

    round: Round
    promoted: float
    acknowledged: float
    following: float
    errors: Counter[str]

    def __str__(self) -> str:
        errors = ", ".join(f"{name} {self.errors[name]}" for name in NOT_HEARD)
        held = ", standby cut off before" if self.round.held_back else ""
        return (
            f"  round {self.round.number}: writable after {self.promoted:.2f} s, first message acknowledged after"
            f" {self.acknowledged:.2f} s, standby again after {self.following:.2f} s; {errors}{held}"
        )


def switches(outcome: Outcome, rounds: Sequence[Round]) -> Iterator[Switch]:
    """What became of each round."""
    evidence = outcome.verdict.evidence
    heard = [one for one in evidence.named("receive", events=(OK,)) if not one.answered["duplicate"]]
    errors = [one for one in evidence.operations if one.event in (FAIL, UNKNOWN) and one.ended]
    for one in rounds:
        first = min((new.ended or 0.0 for new in heard if new.begun >= one.killed), default=float("inf"))
        end = max(one.following, first)
        met = Counter(str(error.answered["error"]) for error in errors if one.killed <= (error.ended or 0.0) <= end)
        yield Switch(one, one.promoted - one.killed, first - one.killed, one.following - one.killed, met)


def summary(title: str, outcome: Outcome, rounds: Sequence[Round]) -> list[str]:
    """The figures in words."""
    told, found = facts(outcome), list(switches(outcome, rounds))
    counted = ", ".join(f"{name.replace('_', ' ')} {told[name]}" for name in TOLD)
    lost_answers = sum(one.answered.get("error") == "CommitUnknown" for one in outcome.verdict.evidence.operations)
    times = {
        "writable": [one.promoted for one in found],
        "acknowledging": [one.acknowledged for one in found],
        "a standby again": [one.following for one in found],
    }
    after = "; ".join(
        f"{name} after {statistics.median(seconds):.2f} s (median; at most {max(seconds):.2f} s)"
        for name, seconds in times.items()
    )
    work = f"{len(rounds)} rounds, {counted}, CommitUnknown {lost_answers}, violations {told['violations']}"
    return [f"{title}: {work}; {after}", *map(str, found)]
