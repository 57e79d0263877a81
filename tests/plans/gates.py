"""What is to be true of how a verb reads its tables, and what is wrong where it is not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from recovery.backend import of
from recovery.errors import StatementFailed
from tests.plans.verbs import MANY, VERBS, Everything
from tests.plans.watching import BOUND_STATE, Rewrite, Seen, watched

FULL, EMPTY, ANOTHER, LONG_AGO = STATISTICS = (
    "analysed when full",
    "analysed while empty",
    "analysed with one row of another kind",
    "analysed when everything was due",
)
"""What the database believes of its tables."""

TASK, REPLY = {"pk_tasks"}, {"pk_outbox"}
LOOK, LOOK_REPLY = {"ix_tasks_lease", "ix_tasks_deadline"}, {"ix_outbox_lease"}
WAITING, WAITING_REPLY = {"ix_tasks_claimable"}, {"ix_outbox_claimable"}

READS: dict[str, set[str]] = {
    "receive": set(),
    "receive_duplicate": {"pk_inbox"},
    "receive_all": set(),
    "receive_all_duplicates": {"pk_inbox"},
    "claim": LOOK | WAITING | TASK,
    "claim_two_queues": LOOK | WAITING | TASK,
    "claim_on_empty": LOOK | WAITING | TASK,
    "claim_on_emptied": LOOK | WAITING | TASK,
    "claim_future": LOOK | WAITING | TASK,
    "claim_batch": LOOK | WAITING | TASK,
    "has_work": LOOK | WAITING,
    "finish": TASK,
    "finish_again": TASK,
    "finish_batch": TASK,
    "finish_and_claim": LOOK | WAITING | TASK,
    "fail": TASK,
    "fail_for_good": TASK,
    "release": TASK,
    "cancel": TASK,
    "renew": TASK,
    "claim_reply": LOOK_REPLY | WAITING_REPLY | REPLY,
    "claim_reply_batch": LOOK_REPLY | WAITING_REPLY | REPLY,
    "has_reply": LOOK_REPLY | WAITING_REPLY,
    "renew_reply": REPLY,
    "settle": REPLY,
    "settle_batch": REPLY,
    "accept": set(),
    "accept_duplicate": {"pk_receipts"},
}
"""By which indexes a verb reads, all of its statements together. None of them is read from end to end."""

NEXT_TASK, NEXT_REPLY, FOREIGN = {"ix_tasks_arrival"}, {"ix_outbox_arrival"}, {"pk_effects"}
STEPS_ALSO_READ: dict[str, set[str]] = {
    "receive": NEXT_TASK,
    "receive_all": NEXT_TASK,
    "finish": NEXT_REPLY,
    "finish_batch": NEXT_REPLY,
    "finish_and_claim": NEXT_REPLY,
    "fail_for_good": NEXT_REPLY,
    "cancel": NEXT_REPLY,
    "accept": FOREIGN,
    "accept_duplicate": FOREIGN,
}
"""Where a verb is several statements, the next arrival is read, and what refers to a receipt."""

ROWS_MAX, ROWS_EACH = 4, 3
STEPS_MAX, STEPS_EACH = 1_000, 600
BLOCKS_MAX, BLOCKS_EACH = 150, 40
"""For a verb by itself, and for each task of a batch. The tables hold many times as much."""


def faults(name: str, seen: Sequence[Seen], *, composes: bool) -> list[str]:
    """What is wrong with the statements that the verb `name` sent; nothing where all is well."""
    accesses = [access for one in seen for access in one.accesses]
    wanted = READS[name] if composes else READS[name] | STEPS_ALSO_READ.get(name, set())
    read = {access.index for access in accesses if access.index is not None}
    return [
        *(f"reads {access.table} from end to end" for access in accesses if access.index is None),
        *(f"reads by {index}" for index in sorted(read - wanted)),
        *(f"does not read by {index}" for index in sorted(wanted - read)),
        *("binds a state" for one in seen if BOUND_STATE.search(one.text)),
        *_too_much(name, seen, composes=composes),
    ]


def _too_much(name: str, seen: Sequence[Seen], *, composes: bool) -> Iterator[str]:
    count = MANY if "_all" in name or "_batch" in name else 1
    touched, blocks = sum(one.touched for one in seen), sum(one.blocks for one in seen)
    allowed = ROWS_MAX + ROWS_EACH * count if composes else STEPS_MAX + STEPS_EACH * count
    if touched > allowed:
        yield f"touches {touched} rows or steps, and {allowed} are enough"
    if blocks > BLOCKS_MAX + BLOCKS_EACH * count:
        yield f"touches {blocks} blocks, and {BLOCKS_MAX + BLOCKS_EACH * count} are enough"


def sent(on: Everything, name: str, rewrite: Rewrite | None = None) -> list[Seen]:
    """What the verb `name` sends, and how each statement is answered."""
    steps = VERBS[name](on)
    next(steps)
    given_up = contextlib.suppress(*(() if rewrite is None else (StatementFailed,)))
    with watched(on.connection(), on.settings.tables, rewrite) as watcher, given_up:
        next(steps, None)
    return watcher.seen


def composes(on: Everything) -> bool:
    """Whether a verb is one statement here."""
    connection: sa.Connection = on.connection()
    return of(connection).composes
