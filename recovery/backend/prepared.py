"""Prepared statements on PostgreSQL: more than half of a composed statement's time is parsing and planning it anew.

They live in a server's session. A pooler between (PgBouncer in transaction mode) gives each transaction another one, so
they are used only on a connection that is seen to be direct: the server tells who it is when a connection begins, a
pooler in between tells something of its own, and `pg_backend_pid()` is the truth. They are used in the library's own
writing transactions only, whose settings decide how a plan that stays is made; in a caller's nothing is kept.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

_DIRECT: Final = "recovery.direct"
_LOST: Final = frozenset({"26000", "42P05"})
"""The session does not have a statement that it should have, or has one that it should not."""
_CHANGED: Final = "RevalidateCachedQuery"
"""The server's function that refuses a statement of which the columns have another type since it was prepared."""

PLANNED: Final = (
    # One plan that stays, and by the indexes that every statement has: however small the tables were when it was made.
    "SET LOCAL plan_cache_mode = force_generic_plan;"
    "SET LOCAL enable_seqscan = off;"
    "SET LOCAL enable_bitmapscan = off;"
    "SET LOCAL enable_hashjoin = off;"
    "SET LOCAL enable_mergejoin = off;"
)
"""For BEGIN's message."""


def leave_off(connection: sa.Connection) -> None:
    """Prepare nothing from here on, as for BEGIN, and for what is the caller's."""
    _driver(connection).prepare_threshold = None


def use(connection: sa.Connection) -> None:
    """Prepare every statement from here on, where the connection is direct. Asks the server once a connection."""
    notes = connection.info
    direct = notes.get(_DIRECT)
    if direct is None:
        direct = notes[_DIRECT] = _is_direct(connection)
    if direct:
        _driver(connection).prepare_threshold = 0


def is_out_of_step(error: Exception) -> bool:
    """Whether the server's session and the driver do not mean the same by a prepared statement; nothing was done."""
    if getattr(error, "sqlstate", None) in _LOST:
        return True
    return getattr(getattr(error, "diag", None), "source_function", None) == _CHANGED


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
    return bool(pid == _driver(connection).info.backend_pid)


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
