"""Rules about how it came to what is stored: the journal, its claims, and the leases that actors were given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from recovery.testing.evidence import Evidence, Hold, Key, Row, named
from recovery.testing.promises import ENDED, HELD, MOVES, NEW, REPLY, TASK
from recovery.testing.row_rules import Found

GIVES_UP = ("fail", "release", "settle")
"""What a holder does to hand back what it holds."""


def journal_replays(of: Evidence) -> Found:
    """The moves of each row follow from each other, are allowed, and end in what is stored."""
    rows: dict[Key, list[Row]] = {(TASK, identity): found for identity, found in of.tasks.items()}
    rows |= {(REPLY, identity): found for identity, found in of.replies.items()}
    for key in rows.keys() | of.journal.keys():
        moves, stored = of.journal.get(key, []), rows.get(key, [])
        if len(stored) != 1 or not moves:
            yield named(*key), f"{len(moves)} moves in the journal, and {len(stored)} rows"
            continue
        for seen in (*_chain(key[0], moves), *_end(key[0], moves, stored[0])):
            yield named(*key), seen


def _chain(subject: str, moves: Sequence[Row]) -> list[str]:
    wrong, state = [], NEW
    for move in moves:
        step = f"move {move['seq']}, {move['from_state']} to {move['to_state']}"
        if move["from_state"] != state:
            wrong.append(f"{step}: it was {state}")
        if move["to_state"] not in MOVES[subject].get(move["from_state"], ()):
            wrong.append(f"{step}: not allowed")
        state = move["to_state"]
    return wrong


def _end(subject: str, moves: Sequence[Row], row: Row) -> list[str]:
    last = moves[-1]
    fence = max((move["fence"] for move in moves if move["to_state"] == HELD[subject]), default=0)
    holder = last["owner"] if last["to_state"] == HELD[subject] else None
    told = {"state": last["to_state"], "fence": fence, "owner": holder}
    return [f"{name} is {row[name]}, and by the journal {value}" for name, value in told.items() if row[name] != value]


def one_terminal_state(of: Evidence) -> Found:
    """A state that ends a row is reached once and never left."""
    for (subject, identity), moves in of.journal.items():
        final = ENDED if subject == TASK else {"sent"}
        first = next((index for index, move in enumerate(moves) if move["to_state"] in final), len(moves))
        for move in moves[first + 1 :]:
            seen = f"it ended as {moves[first]['to_state']}, and then went to {move['to_state']} (move {move['seq']})"
            yield named(subject, identity), seen


def fence_handed_out_once(of: Evidence) -> Found:
    """No fence of a task or a reply is given to two claims, neither by the journal nor by the actors' word."""
    by_journal = Counter(hold.key for holds in of.holds.values() for hold in holds)
    by_actors = Counter(grant.key for grant in of.grants)
    for source, counts in (("in the journal", by_journal), ("to actors", by_actors)):
        for (subject, identity, fence), count in counts.items():
            if count > 1:
                yield named(subject, identity), f"fence {fence} was handed out {count} times {source}"


def fences_increase(of: Evidence) -> Found:
    """Each claim has a higher fence than the one before."""
    for holds in of.holds.values():
        for before, after in pairwise(holds):
            if after.fence <= before.fence:
                yield after.name, f"fence {after.fence} came after {before.fence}"
        if holds and holds[0].fence < 1:
            yield holds[0].name, f"its first fence is {holds[0].fence}"


def leases_never_overlap(of: Evidence) -> Found:
    """Nobody is given what another still holds: the lease was over, or its holder gave it back."""
    for holds in of.holds.values():
        for before, after in pairwise(holds):
            until = of.lease_ends.get(before.key)
            if until is not None and after.at < until and not _gave_up(of, before):
                seen = f"fence {after.fence} began at {after.at}, and the lease of fence {before.fence} ran to {until}"
                yield after.name, seen


def _gave_up(of: Evidence, hold: Hold) -> bool:
    return any(one.name in GIVES_UP for one in of.asked_of_holds.get(hold.key, []))


def no_start_after_deadline(of: Evidence) -> Found:
    """No task is claimed once its deadline is over."""
    for row in of.queue.tasks:
        for hold in of.holds.get((TASK, row["task_id"]), []):
            if hold.at >= row["deadline"]:
                yield hold.name, f"fence {hold.fence} began at {hold.at}; its deadline was {row['deadline']}"


def nothing_after_the_lease(of: Evidence) -> Found:
    """Only a claim that is still good finishes a task or settles a reply: neither lease nor deadline is over."""
    deadlines = {row["task_id"]: row["deadline"] for row in of.queue.tasks}
    for holds in of.holds.values():
        for hold in holds:
            if hold.left is None or hold.left["to_state"] not in ("done", "sent"):
                continue
            until, ended = of.lease_ends.get(hold.key), hold.left["at"]
            if until is not None and hold.key not in of.unsure_leases and ended >= until:
                yield hold.name, f"it ended as {hold.left['to_state']} at {ended}, and its lease was over at {until}"
            if hold.subject == TASK and ended >= deadlines.get(hold.task_id, ended + 1):
                yield hold.name, f"it was done at {ended}, and its deadline was {deadlines[hold.task_id]}"
