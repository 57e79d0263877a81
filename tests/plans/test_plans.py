"""How the databases answer every statement of the verbs in large tables, whatever they believe of these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.plans.gates import ANOTHER, LONG_AGO, READS, composes, faults, sent
from tests.plans.verbs import VERBS


@dataclass(frozen=True)
class Worse:
    """A change that makes a statement of a verb worse: a pattern of its text, and what stands there instead.

    `believing` names the statistics without which the database finds its way all the same.
    """

    verb: str
    pattern: str
    instead: str
    believing: str = ""

    def __call__(self, text: str, given: Any) -> tuple[str, Any]:
        changed = re.sub(self.pattern, self.instead, text)
        return changed, {**given, "p_state": "pending"} if "p_state" in changed else given


IN_BOTH = {
    "the claim wraps the state": Worse("claim", r"(\w*tasks\.state) = 'pending' AND", r"\1 || '' = 'pending' AND"),
    "the look wraps its key": Worse("claim", r"(\w*tasks\.lease_until) <=", r"\1 + 0 <="),
}
COMPOSED = {
    "the finish names the state": Worse(
        "finish", r"(\w*tasks)\.task_id = held\.key", r"\g<0> AND \1.state = 'running'", believing=ANOTHER
    ),
    "the finish wraps its key": Worse("finish", r"(\w*tasks\.task_id) = held\.key", r"\1 || '' = held.key"),
    "the claim binds the state": Worse("claim", r"(\w*tasks\.state) = 'pending' AND", r"\1 = %(p_state)s::TEXT AND"),
    "the claim does not probe": Worse("claim_future", r"AND \w*tasks\.priority = CAST\(10 - \w+\.ord AS INTEGER\)", ""),
    "the claim wraps its key": Worse("claim", r"(\w*tasks\.queue) = (%\(p_queue\)s\S*)", r"\1 || '' = \2"),
    "the look has no order": Worse(
        "has_work",
        r"\(SELECT 1\s+FROM (\w+)\s+WHERE ((?:(?!LIMIT)[\s\S])*?) ORDER BY \w+\.deadline\s+LIMIT 1\) IS NOT NULL",
        r"EXISTS (SELECT 1 FROM \1 WHERE \2)",
        believing=LONG_AGO,
    ),
}
IN_STEPS = {
    "the finish wraps its key": Worse("finish", r"(\w*tasks\.task_id) = (:p_key|\?)", r"\1 || '' = \2"),
    "the claim binds the state": Worse("claim", r"(\w*tasks\.state) = 'pending' AND", r"\1 = :p_state AND"),
    "the claim does not probe": Worse("claim_future", r"AND \w*tasks\.priority = \d", ""),
    "the claim wraps its key": Worse("claim", r"(\w*tasks\.priority) = (\d)", r"\1 + 0 = \2"),
}


def test_every_verb_has_a_plan():
    """No verb is left out of the table of plans."""
    assert list(VERBS) == list(READS)


@pytest.mark.parametrize("name", VERBS)
def test_reads_by_its_indexes_and_no_more_than_it_needs(crowded, name):
    """A verb reads by exactly the indexes of the table, from none from end to end, and a bounded number of rows."""
    with crowded.session() as on:
        assert [] == faults(name, sent(on, name), composes=composes(on))


def test_worse_statements_are_noticed(crowded):
    """Each change that makes a statement worse is told as a fault."""
    told: dict[str, list[str]] = {}
    with crowded.session() as on:
        changes = IN_BOTH | (COMPOSED if composes(on) else IN_STEPS)
        for name, worse in changes.items():
            if worse.believing in ("", crowded.statistics):
                seen = sent(on, worse.verb, worse)
                told[name] = faults(worse.verb, seen, composes=composes(on))
    assert dict.fromkeys(told, True) == {name: bool(found) for name, found in told.items()}, told
