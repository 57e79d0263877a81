"""Prepared statements on PostgreSQL: more than half of a composed statement's time is parsing and planning it anew.

They live in a server's session. A pooler between (PgBouncer in transaction mode) gives each transaction another one, so
they are used only on a connection that is seen to be direct: the server tells who it is when a connection begins, a
pooler in between tells something of its own, and `pg_backend_pid()` is the truth. Only the library's own statements are
prepared, in its own writing transactions, whose settings decide how a plan that stays is made; a transaction in which a
caller's code runs (an effect) has none of these settings, and prepares nothing.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

_DIRECT: Final = "recovery.direct"
_USED: Final = "recovery.prepares"
_OUT_OF_STEP: Final = frozenset({"FetchPreparedStatement", "StorePreparedStatement", "RevalidateCachedQuery"})
"""The server's functions that refuse a statement which the session does not have, or has already, or of which the
columns have another type since it was prepared."""

PLANNED: Final = (
    # One plan that stays, and by the indexes that every statement has: however small the tables were when it was made.
    "SET LOCAL plan_cache_mode = force_generic_plan;"
    "SET LOCAL enable_seqscan = off;"
    "SET LOCAL enable_bitmapscan = off;"
    "SET LOCAL enable_hashjoin = off;"
    "SET LOCAL enable_mergejoin = off;"
)
"""For BEGIN's message."""


def use(connection: sa.Connection, *, wanted: bool) -> None:
    """Prepare the transaction's statements, if `wanted` and the connection is direct. Asks the server once for each."""
    notes = connection.info
    if wanted and _DIRECT not in notes:
        notes[_DIRECT] = _is_direct(connection)
    vars(connection)[_USED] = wanted and notes[_DIRECT]


def is_used(connection: sa.Connection) -> bool:
    """Whether statements of ours are prepared in the transaction of this connection."""
    return bool(vars(connection).get(_USED, False))


def leave_off(connection: sa.Connection) -> None:
    """The next transaction is the caller's: nothing is prepared there."""
    vars(connection).pop(_USED, None)


def is_out_of_step(error: BaseException) -> bool:
    """Whether the server's session and the driver do not mean the same by a prepared statement; nothing was done."""
    return getattr(getattr(error, "diag", None), "source_function", None) in _OUT_OF_STEP


def give_up(connection: sa.Connection) -> None:
    """Prepare nothing on this connection any more: something stands between it and its session after all."""
    connection.info[_DIRECT] = False


def _is_direct(connection: sa.Connection) -> bool:
    cursor: Any = connection.connection.cursor()
    try:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    finally:
        cursor.close()
    driver: Any = connection.connection.driver_connection
    return bool(pid == driver.info.backend_pid)
