"""What the contract says must hold of every state, whatever happened before: each rule a function of the rows.

A rule returns sentences, one for each violation. They are written from the contract and share no code with the product.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from tests.worlds.contents import ENDED, Contents, Row, canonical, reply_bytes, reply_id, task_id

TASK_MOVES: Final = frozenset(
    {("new", "pending"), ("new", "expired"), ("new", "hop_limit")}
    | {("pending", "running"), ("pending", "cancelled"), ("pending", "expired")}
    | {("running", state) for state in ("done", "failed", "cancelled", "expired", "pending")}
)
REPLY_MOVES: Final = frozenset(
    {("new", "pending"), ("pending", "sending")}
    | {("sending", "sent"), ("sending", "pending"), ("sending", "dead")}
    | {("dead", "pending"), ("dead", "sent")}
)
HELD: Final = {"task": "running", "reply": "sending"}

Rule = Callable[[Contents], Iterable[str]]


def violations(contents: Contents, fingerprints: Mapping[str, str] | None = None) -> list[str]:
    """Every sentence of every rule. `fingerprints` are those of the messages that were sent, by task id."""
    found = [sentence for rule in RULES for sentence in rule(contents)]
    if fingerprints is not None:
        found += _stored_as_sent(contents, fingerprints)
    return found


def _stored_as_sent(contents: Contents, fingerprints: Mapping[str, str]) -> Iterator[str]:
    for row in contents.queue.inbox:
        if fingerprints.get(row.task_id) != row.fingerprint:
            yield f"message {row.message_id} is stored with a fingerprint that nobody sent"


def one_task_a_message(contents: Contents) -> Iterator[str]:
    """Each message has one task and each task one message, under the id that both make."""
    inbox, tasks = (Counter(row.task_id for row in rows) for rows in (contents.queue.inbox, contents.queue.tasks))
    if inbox != tasks or any(count != 1 for count in inbox.values()):
        yield "inbox and tasks do not belong together one by one"
    for row in contents.queue.inbox:
        if row.task_id != task_id(row.principal, row.message_id):
            yield f"message {row.message_id} has the id of another"


def one_reply_an_end(contents: Contents) -> Iterator[str]:
    """A task has ended if and only if it has one reply, with its state for a status and the contract's bytes."""
    replies = Counter(row.task_id for row in contents.queue.outbox)
    by_task = {row.task_id: row for row in contents.queue.outbox}
    for task in contents.queue.tasks:
        if replies[task.task_id] != (task.state in ENDED):
            yield f"task {task.task_id[:6]} is {task.state} and has {replies[task.task_id]} replies"
        elif task.state in ENDED:
            yield from _reply_fits(task, by_task[task.task_id])
    if set(replies) - {task.task_id for task in contents.queue.tasks}:
        yield "a reply has no task"


def _reply_fits(task: Row, reply: Row) -> Iterator[str]:
    said = task.result if task.state == "done" else canonical(task.reason)
    expected = (reply_id(task.task_id), task.state, reply_bytes(task.task_id, task.state, said))
    if (reply.reply_id, reply.status, reply.payload) != expected:
        yield f"the reply of task {task.task_id[:6]} is not that of a task that is {task.state}"


def bounded(contents: Contents) -> Iterator[str]:
    """Attempts stay within their budget, and a lease is whole where a row is held and absent where it is not."""
    leased = [("task", row) for row in contents.queue.tasks] + [("reply", row) for row in contents.queue.outbox]
    for subject, row in leased:
        if not 0 <= row.attempts <= row.max_attempts:
            yield f"a {subject} has {row.attempts} of {row.max_attempts} attempts"
        held = row.state == HELD[subject]
        if (row.owner is not None, row.lease_until is not None) != (held, held):
            yield f"a {subject} that is {row.state} has half a lease, or one too many"
    floors = [(row.id, row.floor >= 0) for row in contents.queue.fence_floor]
    if floors != [(1, True)]:
        yield "there is not one fence floor"


def journal_is_the_story(contents: Contents) -> Iterator[str]:
    """The journal, replayed from nothing, gives each row's state, fence and attempts, by allowed moves only."""
    moves = by_row(contents.queue.journal)
    rows = {("task", row.task_id): row for row in contents.queue.tasks}
    rows |= {("reply", row.task_id): row for row in contents.queue.outbox}
    if moves.keys() != rows.keys():
        yield "the journal tells of other rows than there are"
    for name in sorted(moves.keys() & rows.keys()):
        yield from _told(*name, moves[name], rows[name])


def by_row(journal: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """The moves of each row, by its subject and its task's id."""
    found: dict[tuple[str, str], list[Row]] = {}
    for move in journal:
        found.setdefault((move.subject, move.task_id), []).append(move)
    return found


def _told(subject: str, identity: str, moves: list[Row], row: Row) -> Iterator[str]:
    name = f"{subject} {identity[:6]}"
    allowed = TASK_MOVES if subject == "task" else REPLY_MOVES
    if any((move.from_state, move.to_state) not in allowed for move in moves):
        yield f"{name} made a move that there is not"
    chain = ["new", *(move.to_state for move in moves)]
    if chain[:-1] != [move.from_state for move in moves] or chain[-1] != row.state:
        yield f"{name} is {row.state}, and its journal is torn"
    claims = [move for move in moves if move.to_state == HELD[subject]]
    last = (claims[-1].fence, claims[-1].attempt) if claims else (0, 0)
    if (row.fence, row.attempts) != last or row.attempts != len(claims):
        yield f"{name} has fence {row.fence} after {row.attempts} attempts, and was claimed {len(claims)} times"
    if any(late.at < early.at for early, late in pairwise(moves)):
        yield f"{name} went back in time"


def fences_only_grow(contents: Contents) -> Iterator[str]:
    """No fence is handed out twice, and each is higher than the one before; what is held is given back under it."""
    for (subject, identity), moves in by_row(contents.queue.journal).items():
        fences = [move.fence for move in moves if move.to_state == HELD[subject]]
        if any(late <= early for early, late in pairwise(fences)):
            yield f"{subject} {identity[:6]} was claimed under fences {fences}"
        for claimed, left in pairwise(moves):
            if claimed.to_state == HELD[subject] and (left.fence, left.owner) != (claimed.fence, claimed.owner):
                yield f"{subject} {identity[:6]} was left under another claim than the one it was held by"


def no_start_after_the_deadline(contents: Contents) -> Iterator[str]:
    """A task is claimed before its deadline only, and done before it."""
    deadlines = {row.task_id: row.deadline for row in contents.queue.tasks}
    for move in contents.queue.journal:
        late = move.at >= deadlines.get(move.task_id, move.at)
        if move.subject == "task" and late and move.to_state in {"running", "done"}:
            yield f"task {move.task_id[:6]} became {move.to_state} after its deadline"


def one_effect_a_reply(contents: Contents) -> Iterator[str]:
    """Each receipt has one effect, each effect its receipt; what is sent was received, byte for byte."""
    receiver = contents.receiver
    receipts = {row.reply_id: row for row in receiver.receipts}
    for name, rows in (("mark", receiver.effects), ("effect", receiver.applied)):
        counts: Counter[Any] = Counter(row.reply_id for row in rows)
        if counts != Counter(receipts.keys()):
            yield f"receipts and {name}s do not belong together one by one"
    replies = {row.reply_id: row for row in contents.queue.outbox}
    for identity, receipt in receipts.items():
        payload = replies[identity].payload if identity in replies else None
        mark = hashlib.sha256(str(payload).encode()).hexdigest()
        if (receipt.payload, receipt.content_hash) != (payload, mark):
            yield "a receipt is for other bytes than the reply's"
    if any(reply.state == "sent" and reply.reply_id not in receipts for reply in replies.values()):
        yield "a reply is sent, and its receiver has no receipt"


RULES: Final[tuple[Rule, ...]] = (
    one_task_a_message,
    one_reply_an_end,
    bounded,
    journal_is_the_story,
    fences_only_grow,
    no_start_after_the_deadline,
    one_effect_a_reply,
)
