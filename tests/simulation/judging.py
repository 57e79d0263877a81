"""Whether a history is one that the contract allows, by what was answered and by what is stored at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

from recovery import Envelope
from tests.simulation.stage import BACKOFF_SECONDS, SENDER, Event
from tests.worlds.contents import ENDED, Contents, Row, canonical, fingerprint, task_id
from tests.worlds.invariants import violations

FENCED: Final = "Fenced"
MOVED: Final = {
    "fail": "task",
    "give up": "task",
    "release": "task",
    "settle lost": "reply",
    "settle delivered": "reply",
}
"""Verbs that answer with the state in which they leave their row."""
ENDED_EARLY: Final = MOVED.keys() - {"settle delivered"}
"""Verbs that may give a row back before its lease is over."""
DOUBTFUL: Final = frozenset({"claim", "claim reply", "cancel", *MOVED})
"""Verbs that the library never repeats: an answer that was lost is said to be."""


class Span(NamedTuple):
    """A lease that was handed out: its row, fence, beginning, and its end by its holder's last word."""

    row: str
    fence: int
    begin: float
    until: float


@dataclass(frozen=True)
class Case:
    """What is judged: all that was answered, what was sent, and what is stored in the end."""

    history: Sequence[Event]
    envelopes: Sequence[Envelope]
    contents: Contents

    @cached_property
    def names(self) -> dict[str, str]:
        """The message of each task."""
        return {task_id(SENDER, one.message_id): one.message_id for one in self.envelopes}

    @cached_property
    def deadlines(self) -> dict[str, Any]:
        """The deadline of each message, in seconds since the epoch."""
        return {one.message_id: one.deadline for one in self.envelopes}

    @cached_property
    def moves(self) -> list[Row]:
        """The journal."""
        return list(self.contents.queue.journal)

    def moved(self, row: str, to: str) -> Iterator[Row]:
        """The moves of a row to a state. A row is named as in the history."""
        subject = "reply" if row.startswith("reply:") else "task"
        name = row.removeprefix("reply:")
        yield from (
            move
            for move in self.moves
            if (move.subject, self.names.get(move.task_id), move.to_state) == (subject, name, to)
        )

    @cached_property
    def results(self) -> dict[str, str | None]:
        """What is stored as each message's result."""
        return {self.names[row.task_id]: row.result for row in self.contents.queue.tasks if row.task_id in self.names}


Rule = Callable[[Case], Iterator[str]]


def judge(history: Sequence[Event], envelopes: Sequence[Envelope], contents: Contents) -> list[str]:
    """A sentence for each promise that was broken."""
    case = Case(history, envelopes, contents)
    fingerprints = {task_id(SENDER, one.message_id): fingerprint(one) for one in envelopes}
    return violations(contents, fingerprints) + [sentence for rule in RULES for sentence in rule(case)]


def stored_once(case: Case) -> Iterator[str]:
    """A message is new once."""
    new = Counter(event.verb for event in case.history if event.verb.startswith("receive") and event.answer is False)
    yield from (f"{verb}: it was new {count} times" for verb, count in new.items() if count > 1)


def no_lie(case: Case) -> Iterator[str]:
    """Other content under a stored id is refused."""
    for event in case.history:
        if event.verb.endswith("(a lie)") and event.answer != "PayloadCollision":
            yield f"{event}: a lie was not refused"


def no_fence_twice(case: Case) -> Iterator[str]:
    """No fence of a row is handed out twice, and each is higher than those before it."""
    last: dict[str, int] = {}
    for event in case.history:
        if event.verb.endswith(("claim", "claim reply")) and isinstance(event.answer, tuple):
            row, _, fence, *_ = event.answer
            if fence <= last.get(row, 0):
                yield f"{event}: fence {last[row]} was handed out before"
            last[row] = fence


def no_two_leases(case: Case) -> Iterator[str]:
    """Two leases of one row that were handed out do not overlap, unless the first was given back."""
    spans = sorted(_spans(case.history), key=lambda span: (span.row, span.fence))
    for early, late in pairwise(spans):
        if early.row == late.row and late.begin < early.until:
            yield f"{late.row}/{late.fence} began at {late.begin}, and fence {early.fence} held it until {early.until}"


def _spans(history: Sequence[Event]) -> Iterator[Span]:
    told: dict[tuple[str, int], Span] = {}
    for event in history:
        if isinstance(event.answer, tuple) and len(event.answer) == 5:
            row, _, fence, _, until = event.answer
            told[row, fence] = told.get((row, fence), Span(row, fence, event.at, until))._replace(until=until)
        elif event.verb in ENDED_EARLY and event.answer != FENCED and (event.row, event.fence) in told:
            told[event.row, event.fence] = told[event.row, event.fence]._replace(until=event.at)
    yield from told.values()


def no_late_word(case: Case) -> Iterator[str]:
    """What holds only while a lease and a deadline last is refused when they are over."""
    until: dict[tuple[str, int], float] = {}
    for event in case.history:
        asked = (event.row, event.fence)
        held = event.verb in MOVED or event.verb.startswith(("finish", "renew"))
        if held and event.answer not in {FENCED, "Died", "CommitUnknown"}:
            late = event.at >= min(until.get(asked, event.at), case.deadlines.get(event.row, event.at + 1))
            if late and not _was_done(case, event):
                yield f"{event}: its lease or its deadline was over"
        if isinstance(event.answer, tuple) and len(event.answer) == 5:
            until[event.answer[0], event.answer[2]] = event.answer[4]


def _was_done(case: Case, event: Event) -> bool:
    """Whether a finish is one that was stored before, of which the same is asked again."""
    done = [move for move in case.moved(event.row, "done") if move.at <= event.at]
    mine = [(move.fence, move.owner) for move in done] == [(event.fence, event.actor)]
    return mine and event.verb.startswith("finish") and case.results.get(event.row) == _result(event)


def _result(event: Event) -> str:
    return canonical(event.verb.split()[1])


def asked_again(case: Case) -> Iterator[str]:
    """A finish that is stored is not refused when it is asked again."""
    for event in case.history:
        if event.answer == FENCED and event.verb.startswith("finish") and _was_done(case, event):
            yield f"{event}: it is stored"


def doubt_is_told(case: Case) -> Iterator[str]:
    """Where the answer to a COMMIT was lost, and a repeat is not harmless, the caller is told of the doubt."""
    for event in case.history:
        doubtful = event.verb in DOUBTFUL or event.verb.endswith("and claim")
        if doubtful and event.fate.startswith("loses") and event.answer != "CommitUnknown":
            yield f"{event}: nobody was told"


def waited_for(case: Case) -> Iterator[str]:
    """What failed is tried again after the backoff, and not before."""
    free_at: dict[str, float] = {}
    for event in case.history:
        if event.verb in {"fail", "settle lost"} and event.answer == "pending":
            free_at[event.row] = event.at + BACKOFF_SECONDS
        elif isinstance(event.answer, tuple) and event.at < free_at.get(str(event.answer[0]), event.at):
            yield f"{event}: it was to wait until {free_at[str(event.answer[0])]}"


def in_the_journal(case: Case) -> Iterator[str]:
    """What was acknowledged is stored: the row was moved there, under that fence, at that time."""
    for event in case.history:
        known = isinstance(event.answer, str) and event.answer.islower()
        if event.verb in MOVED and known and (event.fence, event.at) not in _when(case, event.row, event.answer):
            yield f"{event}: the journal does not know of it"
        if event.verb == "cancel" and event.answer is True:
            late = event.at >= case.deadlines[event.row]
            if late or event.at not in {at for _, at in _when(case, event.row, "cancelled")}:
                yield f"{event}: it was too late, or the journal does not know of it"
        if event.verb.startswith("finish") and not isinstance(event.answer, str) and not _was_done(case, event):
            yield f"{event}: it is not what is stored"


def _when(case: Case, row: str, to: str) -> set[tuple[int, float]]:
    return {(move.fence, move.at) for move in case.moved(row, to)}


def drained(case: Case) -> Iterator[str]:
    """In the end every message is stored, every task has ended, and every reply is settled for a reason."""
    queue = case.contents.queue
    missing = case.names.keys() - {row.task_id for row in queue.inbox}
    yield from (f"message {case.names[identity]} was never stored" for identity in sorted(missing))
    for row in queue.tasks:
        if row.state not in ENDED:
            yield f"task {case.names.get(row.task_id)} is still {row.state}"
    for row in queue.outbox:
        if row.state not in {"sent", "dead"}:
            yield f"the reply of {case.names.get(row.task_id)} is still {row.state}"
        if row.state == "dead" and row.attempts < row.max_attempts:
            yield f"the reply of {case.names.get(row.task_id)} is dead after {row.attempts} attempts"


RULES: Final[tuple[Rule, ...]] = (
    stored_once,
    no_lie,
    no_fence_twice,
    no_two_leases,
    no_late_word,
    asked_again,
    doubt_is_told,
    waited_for,
    in_the_journal,
    drained,
)
