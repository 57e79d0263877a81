"""How the databases mean to answer every statement of the hot verbs, in tables that are large, whatever they believe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.plans.gates import READS, composes, faults, sent
from tests.plans.verbs import VERBS


@dataclass(frozen=True)
class Worse:
    """A change that makes a statement of a verb worse: a pattern of its text, and what stands there instead."""

    verb: str
    pattern: str
    instead: str

    def __call__(self, text: str, given: Any) -> tuple[str, Any]:
        changed = re.sub(self.pattern, self.instead, text)
        return changed, {**given, "p_state": "pending"} if "p_state" in changed else given


WRAPPED_LOOK = Worse("claim", r"(\w*tasks\.lease_until) <=", r"\1 + 0 <=")
WORSE = {
    True: {
        "the finish names the state": Worse("finish", r"(\w*tasks)\.fence = held\.fence", r"\g<0> AND \1.state = 'running'"),
        "the finish wraps its key": Worse("finish", r"(\w*tasks\.task_id) = held\.key", r"\1 || '' = held.key"),
        "the claim binds the state": Worse("claim", r"(\w*tasks\.state) = 'pending' AND", r"\1 = %(p_state)s::TEXT AND"),
        "the claim wraps the state": Worse("claim", r"(\w*tasks\.state) = 'pending' AND", r"\1 || '' = 'pending' AND"),
        "the claim does not probe": Worse("claim_future", r"AND \w*tasks\.priority = \w+\.priority", ""),
        "the claim wraps its key": Worse("claim", r"(\w*tasks\.queue) = (\w+\.queue)", r"\1 || '' = \2"),
        "the look wraps its key": WRAPPED_LOOK,
    },
    False: {
        "the finish wraps its key": Worse("finish", r"(\w*tasks\.task_id) = :p_key", r"\1 || '' = :p_key"),
        "the claim binds the state": Worse("claim", r"(\w*tasks\.state) = 'pending' AND", r"\1 = :p_state AND"),
        "the claim wraps the state": Worse("claim", r"(\w*tasks\.state) = 'pending' AND", r"\1 || '' = 'pending' AND"),
        "the claim does not probe": Worse("claim_future", r"AND \w*tasks\.priority = \d", ""),
        "the claim wraps its key": Worse("claim", r"(\w*tasks\.priority) = (\d)", r"\1 + 0 = \2"),
        "the look wraps its key": WRAPPED_LOOK,
    },
}
"""By whether verbs are composed into one statement."""


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
    told = {}
    with crowded.session() as on:
        for change, worse in WORSE[composes(on)].items():
            told[change] = faults(worse.verb, sent(on, worse.verb, worse), composes=composes(on))
            on.connection().info.clear()
    print(told)
    assert [] == [change for change, found in told.items() if not found]
