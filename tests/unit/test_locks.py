"""What PostgreSQL is told of locks: which rows, how strongly, in which order, and whether to wait for them.

No outcome shows all of it. A lock that is too strong only makes the inserts of others wait, and an order that is
missing is a deadlock only with the plan that happens to lock in another one.
"""

from __future__ import annotations

import re

import pytest
from sqlalchemy.dialects import postgresql

from recovery.backend.postgresql import PostgreSQL
from recovery.repositories import claiming, holding, leases
from recovery.schema import tables

AT = PostgreSQL()
TASKS, REPLIES = leases.leased_tasks(tables()), leases.leased_replies(tables())
NEXT = "FOR NO KEY UPDATE SKIP LOCKED"
"""Of what anybody may take: what somebody else has locked is passed over."""
WAIT = "FOR NO KEY UPDATE"
"""Of a row that is named: whoever has it is waited for."""
IN_ORDER = "ORDER BY {key} FOR NO KEY UPDATE OF {table}"
"""Of several rows that are named: two that name the same ones meet at the first."""
LOCKS = {
    "finish": (lambda: holding.finish_statement(tables(), TASKS, "hand", AT), [IN_ORDER], TASKS),
    "settle": (lambda: holding.settle_statement(tables(), REPLIES, "hand", AT), [IN_ORDER], REPLIES),
    "finish_and_claim": (
        lambda: holding.finish_and_claim_statement(tables(), TASKS, "one", "hand", AT),
        [IN_ORDER, NEXT],
        TASKS,
    ),
    "claim": (lambda: claiming._claim_statement(TASKS, "one", "hand", AT), [NEXT], TASKS),
    "claim from several": (lambda: claiming._claim_statement(TASKS, "several", "hand", AT), [NEXT], TASKS),
    "claim a reply": (lambda: claiming._claim_statement(REPLIES, "one", "hand", AT), [NEXT], REPLIES),
    "one row": (lambda: leases._lock(TASKS), [WAIT], TASKS),
    "what is due": (lambda: leases._due(TASKS, "deadline"), [NEXT], TASKS),
    "deliveries that are due": (lambda: leases._due(REPLIES, "lease_until"), [NEXT], REPLIES),
}


@pytest.mark.parametrize(("build", "expected", "leased"), LOCKS.values(), ids=LOCKS.keys())
def test_what_is_locked(build, expected, leased):
    """Each statement holds exactly these locks, and none that a new reply of the same task would have to wait for."""
    text = " ".join(str(build().compile(dialect=postgresql.dialect())).split())
    table, key = leased.table.name, str(leased.key)
    found = re.findall(r"(?:ORDER BY [\w.]+ )?FOR (?:NO KEY )?(?:UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?", text)
    wanted = [clause.format(table=table, key=key) for clause in expected]
    assert wanted == [one if one in wanted else one[one.index("FOR ") :] for one in found]
