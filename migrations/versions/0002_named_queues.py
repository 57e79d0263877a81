"""Named queues and priorities: every task has both, and the index of the claim begins with them.

The columns have been there since the first step, empty. A release that does not know them yet may go on storing tasks:
the defaults put those where it would look for them.

Frozen: a step that was released never changes, and imports nothing of recovery.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ENDED = "state IN ('done', 'failed', 'cancelled', 'expired', 'hop_limit')"
COLUMNS = (
    "task_id, arrival, queue, priority, state, payload, deadline, hops, max_attempts, attempts, fence, available_at,"
    " owner, lease_until, last_owner, last_error, result, reason, received_at, ended_at"
)
FILLED = COLUMNS.replace("queue, priority", "coalesce(queue, 'default'), coalesce(priority, 0)")
# SQLite changes neither a column's NOT NULL nor a CHECK in place: the table is made anew and filled.
SQLITE_TABLE = f"""CREATE TABLE {{p}}tasks_new (
    task_id TEXT NOT NULL,
    arrival BIGINT NOT NULL,
    queue TEXT DEFAULT 'default' NOT NULL,
    priority INTEGER DEFAULT 0 NOT NULL,
    state TEXT NOT NULL,
    payload TEXT,
    deadline DOUBLE NOT NULL,
    hops BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    available_at DOUBLE NOT NULL,
    owner TEXT,
    lease_until DOUBLE,
    last_owner TEXT,
    last_error TEXT,
    result TEXT,
    reason TEXT,
    received_at DOUBLE NOT NULL,
    ended_at DOUBLE,
    CONSTRAINT pk_{{p}}tasks PRIMARY KEY (task_id),
    CONSTRAINT ck_{{p}}tasks_state
        CHECK (state IN ('pending', 'running', 'done', 'failed', 'cancelled', 'expired', 'hop_limit')),
    CONSTRAINT ck_{{p}}tasks_lease_whole
        CHECK ((state = 'running') = (owner IS NOT NULL) AND (owner IS NULL) = (lease_until IS NULL)),
    CONSTRAINT ck_{{p}}tasks_attempts CHECK (attempts >= 0 AND attempts <= max_attempts),
    CONSTRAINT ck_{{p}}tasks_pending_has_attempts CHECK (state <> 'pending' OR attempts < max_attempts),
    CONSTRAINT ck_{{p}}tasks_fence CHECK (fence >= 0),
    CONSTRAINT ck_{{p}}tasks_max_attempts CHECK (max_attempts >= 1 AND max_attempts <= 10),
    CONSTRAINT ck_{{p}}tasks_hops CHECK (hops >= 0),
    CONSTRAINT ck_{{p}}tasks_priority CHECK (priority >= 0 AND priority <= 9),
    CONSTRAINT ck_{{p}}tasks_ended_whole CHECK (({ENDED}) = (ended_at IS NOT NULL)),
    CONSTRAINT ck_{{p}}tasks_result_when_done CHECK ((state = 'done') OR result IS NULL),
    CONSTRAINT ck_{{p}}tasks_reason_when_not_done CHECK ((reason IS NOT NULL) = ({ENDED} AND state <> 'done')),
    CONSTRAINT ck_{{p}}tasks_payload_while_open CHECK (payload IS NOT NULL OR {ENDED}),
    CONSTRAINT fk_{{p}}tasks_task_id FOREIGN KEY(task_id) REFERENCES {{p}}inbox (task_id)
)"""
SQLITE = (
    SQLITE_TABLE,
    f"INSERT INTO {{p}}tasks_new ({COLUMNS}) SELECT {FILLED} FROM {{p}}tasks",
    "DROP TABLE {p}tasks",
    "ALTER TABLE {p}tasks_new RENAME TO {p}tasks",
    "CREATE INDEX ix_{p}tasks_deadline ON {p}tasks (deadline, task_id) WHERE state IN ('pending', 'running')",
    "CREATE INDEX ix_{p}tasks_lease ON {p}tasks (lease_until, task_id) WHERE state = 'running'",
    "CREATE INDEX ix_{p}tasks_arrival ON {p}tasks (arrival)",
)
POSTGRESQL = (
    # First, and for all that follows: a row that is stored meanwhile would have neither column filled.
    "LOCK TABLE {p}tasks IN ACCESS EXCLUSIVE MODE",
    "UPDATE {p}tasks SET queue = 'default' WHERE queue IS NULL",
    "UPDATE {p}tasks SET priority = 0 WHERE priority IS NULL",
    "ALTER TABLE {p}tasks ALTER COLUMN queue SET DEFAULT 'default', ALTER COLUMN queue SET NOT NULL",
    "ALTER TABLE {p}tasks ALTER COLUMN priority SET DEFAULT 0, ALTER COLUMN priority SET NOT NULL",
    "ALTER TABLE {p}tasks DROP CONSTRAINT ck_{p}tasks_priority",
    "ALTER TABLE {p}tasks ADD CONSTRAINT ck_{p}tasks_priority CHECK (priority >= 0 AND priority <= 9)",
    "DROP INDEX ix_{p}tasks_claimable",
)
CLAIMABLE = (
    "CREATE INDEX ix_{p}tasks_claimable ON {p}tasks (queue, priority, available_at, arrival) WHERE state = 'pending'"
)


def upgrade() -> None:
    """Fill and fix the two columns, and make the index that begins with them."""
    context = op.get_context()
    prefix = context.opts["table_prefix"]
    for statement in (*(SQLITE if context.dialect.name == "sqlite" else POSTGRESQL), CLAIMABLE):
        op.execute(statement.format(p=prefix))


def downgrade() -> None:
    """There is no way down: restore a backup instead."""
    raise NotImplementedError("recovery's ladder only goes up; restore a backup instead.")
