"""The journal: one row for every transition, in the transaction that made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from recovery import states
from recovery.accepting import is_text_key
from recovery.backend import param, rows
from recovery.messages import Transition
from recovery.repositories.adding import add
from recovery.repositories.base import Repository
from recovery.schema import Tables

TASK: Final = "task"
REPLY: Final = "reply"
COLUMNS: Final = ("at", "task_id", "subject", "from_state", "to_state", "owner", "fence", "attempt", "why")
ROWS_MAX: Final = 1000
"""A task has at most ten attempts, so that its journal is far below this; a bound all the same."""


class JournalRepository(Repository):
    """Writes transitions, and reads those of one task."""

    def record(self, transitions: Sequence[dict[str, Any]]) -> None:
        """Add rows, in the order given. Each names at, task_id, subject, from, to, owner, fence, attempt, why."""
        add(self.connection, self.tables.journal, transitions)

    def of(self, task_id: str) -> list[Transition]:
        """The transitions of a task and of its reply, oldest first. An unknown id has none."""
        if not is_text_key(task_id):
            return []
        found = rows(self.connection, _stored, (self.tables,), {"p_task_id": task_id})
        return [Transition(row.seq, float(row.at), *row[2:]) for row in found]


def _stored(tables: Tables) -> sa.Select[Any]:
    """The transitions of one task and of its reply, in order."""
    journal = tables.journal
    own = journal.c.task_id == param("task_id", sa.Text())
    columns = [journal.c[name] for name in Transition.__slots__]
    return sa.select(*columns).where(own).order_by(journal.c.seq).limit(sa.literal_column(str(ROWS_MAX)))


def transition(
    subject: str, row: Any, at: float, to_state: str, why: str, *, from_state: str | None = None
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


def first(subject: str, task_id: str, at: float, to_state: str, why: str) -> dict[str, Any]:
    """A journal row for a row that is new: nobody has held it yet."""
    return {
        "at": at,
        "task_id": task_id,
        "subject": subject,
        "from_state": states.NEW,
        "to_state": to_state,
        "owner": None,
        "fence": 0,
        "attempt": 0,
        "why": why,
    }


def noted(journal: sa.Table, source: sa.Select[Any], name: str = "noted") -> sa.CTE:
    """The journal rows of a composed statement: `source` selects the columns of COLUMNS, in their order."""
    return sa.insert(journal).from_select(list(COLUMNS), source).inline().cte(name)
