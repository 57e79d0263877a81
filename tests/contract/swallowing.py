"""A database that silently leaves out what it was told to write, and the verbs that must notice."""

from __future__ import annotations

import sqlalchemy as sa

from recovery import Settlement

SWALLOW = {
    "sqlite": ("CREATE TRIGGER swallow BEFORE {event} ON {table} WHEN {when} BEGIN SELECT RAISE(IGNORE); END",),
    "postgresql": (
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER swallow BEFORE {event} ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION swallow()",
    ),
}


def swallow(engine, event, table, when="1 = 1"):
    """From here on the database leaves out each INSERT or UPDATE of a table for which `when` holds."""
    with engine.begin() as connection:
        for statement in SWALLOW[engine.dialect.name]:
            connection.execute(sa.text(statement.format(event=event, table=table, when=when)))


ENDS = {
    "renew": lambda queue, claim: queue.renew(claim),
    "finish": lambda queue, claim: queue.finish(claim, 1),
    "finish_batch": lambda queue, claim: queue.finish_batch([(claim, 1)]),
    "finish_and_claim": lambda queue, claim: queue.finish_and_claim(claim, 1),
    "fail": lambda queue, claim: queue.fail(claim, "no"),
    "fail for good": lambda queue, claim: queue.fail(claim, "no", retryable=False),
    "release": lambda queue, claim: queue.release(claim),
    "cancel": lambda queue, claim: queue.cancel(claim.task_id),
}
"""Every verb that changes a task, by what it is called with."""

DELIVERIES = {
    "renew_reply": lambda queue, held: queue.renew_reply(held),
    "settle": lambda queue, held: queue.settle(held, delivered=True),
    "settle for later": lambda queue, held: queue.settle(held, delivered=False),
    "settle_batch": lambda queue, held: queue.settle_batch([Settlement(held, delivered=True)]),
}
"""Every verb that changes a reply."""
