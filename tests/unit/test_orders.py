"""In which order statements ask for rows and write them, where no outcome on these servers shows it.

An index, or the order of insertion, gives the same order today; another plan would not, and then arrival, the journal,
or which of two batches waits for the other would be left to it.
"""

from __future__ import annotations

import re
from functools import partial

import pytest
from sqlalchemy.dialects import postgresql

from recovery.backend.postgresql import PostgreSQL
from recovery.repositories import adding, claiming, holding, journal, leases, outbox, receiving
from recovery.schema import tables

AT, ALL = PostgreSQL(), tables()
TASKS, REPLIES = leases.leased_tasks(ALL), leases.leased_replies(ALL)
FIRST_OVER = ["tasks.lease_until", "tasks.deadline"]
DUE_FIRST = "tasks.available_at, tasks.arrival"
AMONG_QUEUES = "{0}.priority DESC, {0}.available_at, {0}.arrival"
TAKEN = AMONG_QUEUES.format("taken")
MERGED = AMONG_QUEUES.format("first")
TASK_THEN_REPLY = "every.ord, every.step"
ORDERS = {
    "messages": (
        partial(receiving.receive_statement, ALL, "hand", AT),
        ["given.task_id", "fresh.ord", "fresh.ord", "both.step, both.ord"],
    ),
    "finish": (
        partial(holding.finish_statement, ALL, TASKS, "hand", AT),
        ["tasks.task_id", "held.ord", TASK_THEN_REPLY],
    ),
    "finish and claim": (
        partial(holding.finish_and_claim_statement, ALL, TASKS, "one", "hand", AT),
        ["tasks.task_id", "held.ord", *FIRST_OVER, DUE_FIRST, TASK_THEN_REPLY],
    ),
    "settle": (partial(holding.settle_statement, ALL, REPLIES, "hand", AT), ["outbox.reply_id", "held.ord"]),
    "claim": (
        partial(claiming._claim_statement, TASKS, "one", "hand", AT),
        [*FIRST_OVER, DUE_FIRST, TAKEN, TAKEN],
    ),
    "claim from several": (
        partial(claiming._claim_statement, TASKS, "several", "hand", AT),
        [*FIRST_OVER, DUE_FIRST, MERGED, TAKEN, TAKEN],
    ),
    "claim a reply": (
        partial(claiming._claim_statement, REPLIES, "one", "hand", AT),
        ["outbox.lease_until", "outbox.available_at, outbox.arrival", *["taken.available_at, taken.arrival"] * 2],
    ),
    "take in steps": (partial(claiming._take, TASKS, 1, looks=True), [*[DUE_FIRST] * 10, *FIRST_OVER]),
    "take from two in steps": (
        partial(claiming._take, TASKS, 2, looks=True),
        [*[DUE_FIRST] * 20, AMONG_QUEUES.format("probes"), *FIRST_OVER],
    ),
    "what is due": (partial(leases._due, TASKS, "deadline"), ["tasks.deadline, tasks.task_id"]),
    "a page of what is due": (partial(leases._due_ids, TASKS, "deadline"), ["tasks.task_id"]),
    "many rows at once": (partial(adding._add, ALL.journal, ("at", "task_id"), AT), ["given.ord"]),
    "replies": (partial(outbox._stored, ALL, of_one=False), ["outbox.arrival"]),
    "a journal": (partial(journal._stored, ALL), ["journal.seq"]),
}


@pytest.mark.parametrize(("build", "expected"), ORDERS.values(), ids=ORDERS.keys())
def test_the_order_of_rows(build, expected):
    """Each statement says these orders, in this sequence."""
    text = " ".join(str(build().compile(dialect=postgresql.dialect())).split())
    found = re.findall(r"ORDER BY (.*?)(?= LIMIT| FOR |\)| RETURNING| ON CONFLICT|$)", text)
    assert expected == [order.replace('"', "").replace("anon_2", "given").replace("anon_1", "given") for order in found]
