"""Who is compared, with which settings, and what each leaves to its user.

Each "lacks" was read from the release pinned in versions.toml: its documentation strings, its SQL or its code.
"""

from dataclasses import dataclass

HUEY = (
    "No dedupe, no content comparison, no fence, no outbox. No lease either: `dequeue` deletes the row before the task "
    "runs (storage.py), so a killed worker's task is lost."
)
LITEQUEUE = (
    "Dedupe by `idempotency_key`, with content comparison (`IdempotencyConflict`), until `prune`; stale workers are "
    "fenced by `claim_id`. No leases: the user calls `retry_expired(threshold)`; no renewal, no attempt budget. No "
    "outbox. Sets synchronous=NORMAL, which may lose acknowledged commits at a power cut."
)
ACK_QUEUE = (
    "No dedupe by id (`UniqueAckQ`: equal content, dropped silently), no content comparison, no fence (`ack` goes by "
    "row id alone), no outbox. No lease: opening a queue resets all that is unacknowledged, also what a live worker "
    "holds (`resume_unack_tasks`)."
)
PLAIN_QUEUE = (
    "No dedupe by id, no content comparison, no fence, no outbox, no lease: `get` deletes the item before the work."
)
PROCRASTINATE = (
    "Dedupe only while an equal `queueing_lock` waits; no content comparison; no fence (`procrastinate_finish_job_v1` "
    "checks id and status, not the worker); no outbox. Lost jobs: workers have heartbeats, but the user must schedule "
    "`get_stalled_jobs` and `retry_job`."
)
PGQUEUER = (
    "Dedupe by `dedupe_key` only while a job is queued or picked; no content comparison; no fence (a finished job is "
    "deleted by id alone); no outbox. Stale jobs are picked again by heartbeat age. Ends are buffered per batch."
)
OBAN = (
    "No dedupe (unique jobs are Oban Pro), hence no content comparison; no outbox. An end counts only for the attempt "
    "that is executing (by `attempted_at`); ends wait in memory for the next fetch. No renewal: the lifeline takes "
    "back whatever began 300 s ago, running or not."
)
CHANCY = (
    "Dedupe by `unique_key` only while a job is unfinished; no content comparison; no outbox. Stale workers are fenced "
    "by `claim_id`; lost jobs come back by worker heartbeat (90 s, looked at each 60 s) with a larger budget. Ends "
    "wait in memory for a timer."
)
DBOS = (
    "Dedupe by workflow id, which stays; names are compared on a second call, inputs are not. Stale runs are fenced by "
    "`owner_xid`. No outbox with receipts (durable steps instead). No leases: a lost workflow comes back when the same "
    "executor restarts, or by a separate service."
)


@dataclass(frozen=True)
class Row:
    """One line of the table: a driver on a backend, and the (workers, batch) settings to try when processing.

    Nobody fetches more than 100 at once: it would not be like for like, and since the clock of a worker that fetches
    ahead starts with its first task, its first fetch is free.
    """

    label: str
    peer: str
    module: str
    backend: str
    settings: tuple[tuple[int, int], ...]
    lacks: str
    batches: bool = True
    durability: str = "peer"
    startup: str = "clock starts with the first task"


OURS = "(compared with)"
LOOP = "the loop's own clock: no start-up to count"

ROWS = (
    Row("recovery, batches of 100", "recovery", "recovery", "postgresql", ((1, 100), (2, 100)), OURS, startup=LOOP),
    Row("recovery, one at a time", "recovery", "recovery", "postgresql", ((1, 1), (4, 1), (8, 1)), OURS, startup=LOOP),
    Row("procrastinate", "procrastinate", "procrastinate", "postgresql", ((1, 1), (10, 1), (30, 1)), PROCRASTINATE),
    Row("pgqueuer", "pgqueuer", "pgqueuer", "postgresql", ((1, 10), (1, 50), (1, 100)), PGQUEUER),
    Row("oban", "oban", "oban", "postgresql", ((10, 1), (50, 1), (100, 1)), OBAN),
    Row("chancy", "chancy", "chancy", "postgresql", ((10, 1), (50, 1), (100, 1)), CHANCY),
    Row("dbos", "dbos", "dbos", "postgresql", ((10, 10), (20, 50), (20, 100)), DBOS),
    Row("recovery, batches of 100", "recovery", "recovery", "sqlite", ((1, 100), (2, 100)), OURS, startup=LOOP),
    Row("recovery, one at a time", "recovery", "recovery", "sqlite", ((1, 1), (2, 1)), OURS, startup=LOOP),
    Row("huey", "huey", "huey", "sqlite", ((1, 1), (2, 1), (4, 1)), HUEY, batches=False),
    Row("huey, fsync=True", "huey", "huey", "sqlite", ((1, 1), (2, 1), (4, 1)), HUEY, batches=False, durability="full"),
    Row("litequeue", "litequeue", "litequeue", "sqlite", ((1, 1), (2, 1)), LITEQUEUE, startup=LOOP),
    Row(
        "litequeue, synchronous=FULL",
        "litequeue",
        "litequeue",
        "sqlite",
        ((1, 1), (2, 1)),
        LITEQUEUE,
        durability="full",
        startup=LOOP,
    ),
    Row(
        "persist-queue, SQLiteAckQueue",
        "persist-queue",
        "persistqueue",
        "sqlite",
        ((1, 1),),
        ACK_QUEUE,
        batches=False,
        startup=LOOP,
    ),
    Row(
        "persist-queue, SQLiteQueue",
        "persist-queue",
        "persistqueue_plain",
        "sqlite",
        ((1, 1),),
        PLAIN_QUEUE,
        batches=False,
        startup=LOOP,
    ),
)
