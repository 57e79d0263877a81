"""Rules about what is stored now: inbox, tasks, replies, receipts and effects.

Each yields whom it was broken for, and what was seen.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from recovery.testing.evidence import Evidence, Row, named
from recovery.testing.history import OK
from recovery.testing.promises import ENDED, REPLY, TASK, canonical, reply_bytes, reply_id, sha256, task_id

Found: TypeAlias = Iterator[tuple[str, str]]


def acknowledged_is_stored(of: Evidence) -> Found:
    """Every acknowledged message has exactly one inbox row and one task row, with its fingerprint, and was new once."""
    new: set[str] = set()
    for one in of.named("receive", events=(OK,)):
        identity = task_id(one.asked["principal"], one.asked["message_id"])
        inbox, tasks = of.inbox.get(identity, []), of.tasks.get(identity, [])
        if one.answered["task_id"] != identity:
            yield named(TASK, identity), f"{one} was told another id, {one.answered['task_id']}"
        if (len(inbox), len(tasks)) != (1, 1):
            yield named(TASK, identity), f"acknowledged to {one}; {len(inbox)} inbox rows, {len(tasks)} task rows"
        elif inbox[0]["fingerprint"] != one.asked["fingerprint"]:
            yield named(TASK, identity), f"acknowledged to {one}, and stored with another fingerprint"
        if not one.answered["duplicate"] and identity in new:
            yield named(TASK, identity), f"was new a second time for {one}"
        new |= set() if one.answered["duplicate"] else {identity}


def task_has_inbox(of: Evidence) -> Found:
    """Inbox and tasks go together, one row each, and the id is the hash of what the message is called."""
    for identity in of.inbox.keys() | of.tasks.keys():
        inbox, tasks = of.inbox.get(identity, []), of.tasks.get(identity, [])
        if (len(inbox), len(tasks)) != (1, 1):
            yield named(TASK, identity), f"{len(inbox)} inbox rows, {len(tasks)} task rows"
    for row in of.queue.inbox:
        if row["task_id"] != task_id(row["principal"], row["message_id"]):
            yield named(TASK, row["task_id"]), "the id is not the hash of principal and message id"


def terminal_has_one_reply(of: Evidence) -> Found:
    """A task has exactly one reply if it has ended, and none before."""
    for row in of.queue.tasks:
        count, due = len(of.replies.get(row["task_id"], [])), int(row["state"] in ENDED)
        if count != due:
            yield named(TASK, row["task_id"]), f"it is {row['state']} and has {count} replies"
    for identity in of.replies.keys() - of.tasks.keys():
        yield named(REPLY, identity), "there is no such task"


def reply_says_the_state(of: Evidence) -> Found:
    """A reply's status is its task's state, its id the task's, and its bytes are those of the contract."""
    for reply in of.queue.outbox:
        identity = reply["task_id"]
        if reply["reply_id"] != reply_id(identity):
            yield named(REPLY, identity), f"it is called {reply['reply_id']}"
        for task in of.tasks.get(identity, []):
            if reply["status"] != task["state"]:
                yield named(REPLY, identity), f"it says {reply['status']}, and the task is {task['state']}"
            elif reply["payload"] is not None and reply["payload"] != _expected_bytes(task):
                yield named(REPLY, identity), f"its bytes (SHA-256 {sha256(reply['payload'])}) are not the contract's"


def _expected_bytes(task: Row) -> str | None:
    if task["state"] != "done":
        return reply_bytes(task["task_id"], task["state"], task["reason"])
    try:
        result: Any = json.loads(task["result"])
    except (TypeError, ValueError):
        return None
    return reply_bytes(task["task_id"], "done", result) if canonical(result) == task["result"] else None


def reply_bytes_never_change(of: Evidence) -> Found:
    """Every dispatcher was given, and every receiver has, the bytes that are stored."""
    seen: dict[str, dict[str, str]] = defaultdict(dict)
    for identity, mark, what in _bytes_seen(of):
        seen[identity].setdefault(mark, what)
    for identity, marks in seen.items():
        if len(marks) > 1:
            yield identity, "; ".join(f"{mark} {what}" for mark, what in marks.items())
    for receipt in of.receiver.receipts:
        if receipt["payload"] is not None and sha256(receipt["payload"]) != receipt["content_hash"]:
            yield receipt["reply_id"], "the receipt's hash is not that of its payload"


def _bytes_seen(of: Evidence) -> Iterator[tuple[str, str, str]]:
    for reply in of.queue.outbox:
        if reply["payload"] is not None:
            yield reply["reply_id"], sha256(reply["payload"]), "is stored"
    for receipt in of.receiver.receipts:
        yield receipt["reply_id"], receipt["content_hash"], "is in the receipt"
    for one in of.named("claim_reply", events=(OK,)):
        for claim in one.answered["claims"]:
            yield reply_id(claim["task_id"]), claim["payload"], f"went to {one}"


def attempts_in_bounds(of: Evidence) -> Found:
    """Never more attempts than the budget; as many as there were claims, numbered from 1."""
    for subject, rows in ((TASK, of.queue.tasks), (REPLY, of.queue.outbox)):
        for row in rows:
            key = (subject, row["task_id"])
            if not 0 <= row["attempts"] <= row["max_attempts"]:
                yield named(*key), f"{row['attempts']} attempts of {row['max_attempts']}"
            # A replay of a dead reply begins a new budget.
            if any(move["from_state"] == "dead" for move in of.journal.get(key, [])):
                continue
            numbers = [hold.attempt for hold in of.holds.get(key, [])]
            if numbers != list(range(1, row["attempts"] + 1)):
                yield named(*key), f"{row['attempts']} attempts, and the journal numbers its claims {numbers}"


def hops_in_bounds(of: Evidence) -> Found:
    """Hops at or above the queue's bound end at once, and nothing else ends so."""
    for row in of.queue.tasks:
        far, key = row["hops"] >= of.max_hops, (TASK, row["task_id"])
        if row["hops"] < 0 or (row["state"] == "hop_limit" and not far):
            yield named(*key), f"it is {row['state']} with {row['hops']} hops of {of.max_hops}"
        if far and (row["state"] not in ("hop_limit", "expired") or of.holds.get(key)):
            yield (
                named(*key),
                f"{row['hops']} hops of {of.max_hops}, {row['state']}, claims {len(of.holds.get(key, []))}",
            )


def one_effect(of: Evidence) -> Found:
    """No reply has more than one effect, and no effect comes without its receipt."""
    for identity in of.receipts.keys() | of.effects.keys() | (of.own_effects or {}).keys():
        counts = _receiver_counts(of, identity)
        if max(counts.values()) > 1 or len(set(counts.values())) > 1:
            yield identity, _told(counts)
    new: set[str] = set()
    for one in of.named("accept", events=(OK,)):
        if not one.answered["duplicate"]:
            if one.asked["reply_id"] in new:
                yield one.asked["reply_id"], f"was new a second time for {one}"
            new.add(one.asked["reply_id"])


def sent_has_one_effect(of: Evidence) -> Found:
    """A reply that is sent has exactly one receipt and one effect."""
    for reply in of.queue.outbox:
        counts = _receiver_counts(of, reply["reply_id"])
        if reply["state"] == "sent" and set(counts.values()) != {1}:
            yield reply["reply_id"], f"it is sent; {_told(counts)}"


def _receiver_counts(of: Evidence, identity: str) -> dict[str, int]:
    tables: dict[str, Mapping[str, Sequence[Row]]] = {"receipts": of.receipts, "effects": of.effects}
    if of.own_effects is not None:
        tables["own effects"] = of.own_effects
    return {name: len(rows.get(identity, [])) for name, rows in tables.items()}


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def nothing_left(of: Evidence) -> Found:
    """After a drain nothing waits that is due, and nothing is held whose lease is over."""
    if not of.drained:
        return
    now = of.queue.now
    for subject, rows, held in ((TASK, of.queue.tasks, "running"), (REPLY, of.queue.outbox, "sending")):
        for row in rows:
            if row["state"] == "pending" and row["available_at"] <= now:
                yield named(subject, row["task_id"]), f"it is pending since {row['available_at']}; it is {now}"
            elif row["state"] == held and row["lease_until"] <= now:
                yield named(subject, row["task_id"]), f"its lease was over at {row['lease_until']}; it is {now}"
            elif row["state"] in ("pending", "running") and row.get("deadline", now + 1) <= now:
                yield named(subject, row["task_id"]), f"its deadline was at {row['deadline']}; it is {now}"
