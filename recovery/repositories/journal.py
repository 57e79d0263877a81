"""The journal: one row for every transition, in the transaction that made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from recovery.accepting import is_text_key
from recovery.messages import Transition
from recovery.repositories.base import Repository

TASK = "task"
REPLY = "reply"
ROWS_MAX = 1000
"""A task has at most ten attempts, so that its journal is far below this; a bound all the same."""


class JournalRepository(Repository):
    """Writes transitions, and reads those of one task."""

    def record(self, transitions: Sequence[dict[str, Any]]) -> None:
        """Add rows, in the order given. Each names at, task_id, subject, from, to, owner, fence, attempt, why."""
        if transitions:
            self.connection.execute(sa.insert(self.tables.journal), list(transitions))

    def of(self, task_id: str) -> list[Transition]:
        """The transitions of a task and of its reply, oldest first. An unknown id has none."""
        if not is_text_key(task_id):
            return []
        journal = self.tables.journal
        columns = [journal.c[name] for name in Transition.__slots__]
        rows = self.connection.execute(
            sa.select(*columns).where(journal.c.task_id == task_id).order_by(journal.c.seq).limit(ROWS_MAX)
        )
        return [Transition(row.seq, float(row.at), *row[2:]) for row in rows]


def transition(
    subject: str, row: sa.Row[Any], at: float, to_state: str, why: str, *, from_state: str | None = None
) -> dict[str, Any]:
    """A journal row for a move of a leased row, by what the row says of itself."""
    return {
        "at": at,
        "task_id": row.task_id,
        "subject": subject,
        "from_state": from_state or row.state,
        "to_state": to_state,
        "owner": row.owner,
        "fence": row.fence,
        "attempt": row.attempts,
        "why": why,
    }
