"""The checker: every rule over the histories of the actors and the rows of both databases.

It imports nothing of what it judges. Every actor must have kept a history of all that it asked: a claim that nobody
wrote down is a violation of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from recovery.testing import journal_rules, log_rules, row_rules
from recovery.testing.evidence import Evidence, Violation
from recovery.testing.history import Operation
from recovery.testing.integrity import NotRun, damages
from recovery.testing.log_rules import Resolved, resolved
from recovery.testing.promises import DEFAULT_MAX_HOPS
from recovery.testing.reading import read_queue, read_receiver
from recovery.testing.row_rules import Found

DATABASE_IS_WHOLE: Final = "database is whole"
_FUNCTIONS: Final[tuple[Callable[[Evidence], Found], ...]] = (
    row_rules.acknowledged_is_stored,
    row_rules.task_has_inbox,
    journal_rules.one_terminal_state,
    row_rules.terminal_has_one_reply,
    row_rules.reply_says_the_state,
    row_rules.reply_bytes_never_change,
    journal_rules.fence_handed_out_once,
    journal_rules.fences_increase,
    journal_rules.leases_never_overlap,
    journal_rules.nothing_after_the_lease,
    journal_rules.no_start_after_deadline,
    row_rules.attempts_in_bounds,
    row_rules.hops_in_bounds,
    row_rules.one_effect,
    row_rules.sent_has_one_effect,
    log_rules.answered_is_recorded,
    log_rules.moves_are_asked_for,
    log_rules.refused_changed_nothing,
    log_rules.unknown_is_one_of_two,
    log_rules.no_other_error,
    journal_rules.journal_replays,
    row_rules.nothing_left,
)
RULES: Final[Mapping[str, Callable[[Evidence], Found]]] = MappingProxyType(
    {one.__name__.replace("_", " "): one for one in _FUNCTIONS}
)
"""Every rule by the name that a violation gives it; the first line of each one's docstring says what must be true."""


@dataclass(frozen=True, slots=True)
class Place:
    """A database of recovery's: its SQLAlchemy URL, and what the names of its tables begin with."""

    url: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found: the violations, what became of the unknown operations, and the checks that could not be made."""

    violations: tuple[Violation, ...]
    resolved: Resolved
    not_run: tuple[str, ...]
    evidence: Evidence


def judge(evidence: Evidence) -> list[Violation]:
    """The violations of every rule about rows and answers."""
    return [Violation(name, *found) for name, rule in RULES.items() for found in rule(evidence)]


def check(
    operations: Sequence[Operation],
    queue: Place,
    receiver: Place,
    *,
    own_effects: str | None = None,
    max_hops: int = DEFAULT_MAX_HOPS,
    drained: bool = False,
) -> Verdict:
    """Read both databases and judge. Raises what the drivers raise where one cannot be read.

    `own_effects` names a table of the receiver's own with a column `reply_id`, a row for each effect. `drained` says
    that the actors went on until nothing was left to do.
    """
    rows = read_queue(queue.url, queue.prefix), read_receiver(receiver.url, receiver.prefix, own_effects)
    evidence = Evidence(operations, *rows, max_hops=max_hops, drained=drained)
    violations, not_run = judge(evidence), []
    for url in dict.fromkeys((queue.url, receiver.url)):
        try:
            violations += [Violation(DATABASE_IS_WHOLE, "database", damage) for damage in damages(url)]
        except NotRun as why:
            not_run.append(str(why))
    return Verdict(tuple(violations), resolved(evidence), tuple(dict.fromkeys(not_run)), evidence)
