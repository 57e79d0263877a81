"""What a torture came to: numbers for machines, a text for people, and what is kept where a promise was broken."""

from __future__ import annotations

import bisect
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from recovery.testing.evidence import Evidence, Violation
from recovery.testing.history import FAIL, OK, UNKNOWN
from recovery.testing.promises import task_id
from recovery.testing.torture.company import Event
from recovery.testing.torture.run import Outcome

FINDINGS_MAX: Final = 50
ENDS_LIVES: Final = ("kill", "exit")


def violations(of: Outcome) -> list[Violation]:
    """Everything that must not be: what the checker found, and actors that ended by an error of their own."""
    broken = [
        Violation("actors go on", event.life or "server", event.detail) for event in of.events if event.kind == "broken"
    ]
    unfinished = [] if of.drained else [Violation("nothing left", "database", "the work did not come to its end")]
    return [*of.verdict.violations, *broken, *unfinished]


def facts(of: Outcome) -> dict[str, Any]:
    """The report as one JSON object. Counts are whole numbers; `findings` says the first violations in words."""
    kinds = Counter(event.kind for event in of.events)
    evidence, found = of.verdict.evidence, violations(of)
    return {
        "seed": of.wish.seed,
        "backend": of.backend,
        "seconds": of.wish.seconds,
        "kills": kinds["kill"],
        "exits": kinds["exit"],
        "stops": kinds["woken"],
        "cuts": of.cuts,
        "terminations": kinds["terminate"],
        "crashes": kinds["crash"],
        "full_disks": kinds["full"],
        "clock_jumps": of.jumps,
        "operations": sum(one.ended is not None for one in evidence.operations),
        "acknowledged": len(_acknowledged(evidence)),
        "tasks": dict(sorted(Counter(row["state"] for row in evidence.queue.tasks).items())),
        "replies": dict(sorted(Counter(row["state"] for row in evidence.queue.outbox).items())),
        "lost": sum(not (evidence.inbox.get(one) and evidence.tasks.get(one)) for one in _acknowledged(evidence)),
        "extra_effects": _extra_effects(evidence),
        "fenced": sum(one.answered["error"] == "Fenced" for one in evidence.named(*_VERBS, events=(FAIL,))),
        "unknown": sum(1 for _ in evidence.named(*_VERBS, events=(UNKNOWN,))),
        "unknown_done": of.verdict.resolved.done,
        "unknown_not_done": of.verdict.resolved.not_done,
        "unknown_left_to_leases": sum(1 for _ in evidence.named(*_LEASES, events=(UNKNOWN,))),
        "longest_recovery_seconds": round(max(recoveries(of), default=0.0), 3),
        "paused_seconds": round(sum((one.until or one.at) - one.at for one in of.events if one.kind == "pause"), 1),
        "commit_points": dict(sorted(Counter(event.detail for event in of.events if event.kind == "exit").items())),
        "violations": len(found),
        "findings": [str(one) for one in found[:FINDINGS_MAX]],
        "not_checked": list(of.verdict.not_run),
        "not_done": list(of.left_out),
    }


_LEASES: Final = ("claim", "renew", "claim_reply", "renew_reply")
"""Whatever became of these, a lease ends it."""
_VERBS: Final = ("receive", "finish", "finish_and_claim", "fail", "release", "cancel", "settle", "accept", *_LEASES)


def _acknowledged(evidence: Evidence) -> set[str]:
    heard = evidence.named("receive", events=(OK,))
    return {task_id(one.asked["principal"], one.asked["message_id"]) for one in heard}


def _extra_effects(evidence: Evidence) -> int:
    own = evidence.effects if evidence.own_effects is None else evidence.own_effects
    return sum(len(rows) - 1 for rows in own.values())


def recoveries(of: Outcome) -> Iterator[float]:
    """How long it took, in seconds, until things went on after each fault; the machine's own pauses do not count.

    After the end of a life: until the last of what it held was free or ended. After a crash of the server: until the
    first operation that was begun later was answered.
    """
    pauses = [(event.at, event.until or event.at) for event in of.events if event.kind == "pause"]
    for begin, end in _recoveries(of):
        yield end - begin - sum(max(0.0, min(end, until) - max(begin, at)) for at, until in pauses)


def _recoveries(of: Outcome) -> Iterator[tuple[float, float]]:
    held: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for holds in of.verdict.evidence.holds.values():
        for hold in holds:
            if hold.left is not None:
                held[hold.owner].append((hold.at - of.clock_ahead, hold.left["at"] - of.clock_ahead))
    for event in of.events:
        if event.kind in ENDS_LIVES:
            left = [end for begin, end in held[event.life] if begin <= event.at < end]
            yield event.at, max(left, default=event.at)
    yield from _after_crashes(of)


def _after_crashes(of: Outcome) -> Iterator[tuple[float, float]]:
    heard = sorted((one.begun, one.ended) for one in of.verdict.evidence.operations if one.event == OK and one.ended)
    begins = [begun for begun, _ in heard]
    for event in of.events:
        if event.kind == "crash":
            later = heard[bisect.bisect(begins, event.at) :]
            yield event.at, min((ended for _, ended in later), default=event.at)


def text(of: Outcome) -> str:
    """The report in words."""
    told = facts(of)
    faults = ("kills", "exits", "stops", "cuts", "terminations", "crashes", "full_disks", "clock_jumps")
    work = ("operations", "acknowledged", "fenced", "unknown")
    doubts = ("unknown_done", "unknown_not_done", "unknown_left_to_leases")
    lines = [
        f"recovery torture on {told['backend']}, {told['seconds']:g} s, seed {told['seed']}",
        f"  faults: {_listed(told, faults)}",
        f"  work: {_listed(told, work)} ({_listed(told, doubts)})",
        f"  tasks: {_listed(told['tasks'], told['tasks'])}; replies: {_listed(told['replies'], told['replies'])}",
        f"  ended at a COMMIT: {_listed(told['commit_points'], told['commit_points']) or 'nobody'}",
        f"  longest recovery: {told['longest_recovery_seconds']:.2f} s",
        *([f"  the machine itself paused for {told['paused_seconds']} s"] if told["paused_seconds"] else []),
        f"  lost {told['lost']}, extra effects {told['extra_effects']}, violations {told['violations']}",
        *(f"    {finding}" for finding in told["findings"]),
        *(f"  not checked: {why}" for why in told["not_checked"]),
        *(f"  not done: {why}" for why in told["not_done"]),
    ]
    return "\n".join(lines)


def _listed(counts: dict[str, Any], names: Any) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {counts[name]}" for name in names)


def keep(of: Outcome, folder: Path) -> None:
    """Write the report, and where a promise was broken the rows that it was seen in, without payloads."""
    (folder / "report.json").write_text(json.dumps(facts(of), indent=1) + "\n", encoding="utf-8")
    (folder / "report.txt").write_text(text(of) + "\n", encoding="utf-8")
    (folder / "events.json").write_text(json.dumps([_event(one) for one in of.events]) + "\n", encoding="utf-8")
    if violations(of):
        queue, receiver = of.verdict.evidence.queue, of.verdict.evidence.receiver
        rows = {name: getattr(queue, name) for name in ("inbox", "tasks", "outbox", "journal")}
        rows |= {"receipts": receiver.receipts, "effects": receiver.effects}
        public = {name: [_without_payload(row) for row in found] for name, found in rows.items()}
        (folder / "rows.json").write_text(json.dumps(public) + "\n", encoding="utf-8")


def _event(event: Event) -> dict[str, Any]:
    return asdict(event)


def _without_payload(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("payload", "result")}
