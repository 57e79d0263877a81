"""The table of moves is the one home of every state."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from recovery import states
from recovery.schema import tables

README = Path(__file__).resolve().parents[2] / "README.md"


def test_readme_prints_both_diagrams() -> None:
    """The diagrams in the README are the ones that the table of moves prints."""
    text = README.read_text(encoding="utf-8")
    assert states.diagram(states.TASK_MOVES) in text
    assert states.diagram(states.REPLY_MOVES) in text


def test_an_ended_task_never_moves() -> None:
    """What the contract calls ended has no move, and everything else has one."""
    assert states.TASK_ENDED == ("done", "failed", "cancelled", "expired", "hop_limit")
    assert states.TASK_OPEN == ("pending", "running")


def test_every_state_is_in_its_check_constraint() -> None:
    """The CHECK of a table lists exactly the states of its moves."""
    for table, moves in ((tables().tasks, states.TASK_MOVES), (tables().outbox, states.REPLY_MOVES)):
        texts = [
            str(check.sqltext)
            for check in table.constraints
            if isinstance(check, sa.CheckConstraint) and str(check.name).endswith("_state")
        ]
        assert [f"state IN ({', '.join(repr(state) for state in states.stored(moves))})"] == texts
