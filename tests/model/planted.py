"""Faults that are planted into the product, for one test each: in its Python, in its SQL, or below it in a database."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from recovery import Settings
from recovery.backend import statement
from recovery.repositories import InboxRepository, JournalRepository, OutboxRepository, claiming, leases
from tests.model.worlds import World

Worlds = tuple[World, ...]
Plant = Callable[[pytest.MonkeyPatch, Worlds], Any]


def no_fence_check(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """Whoever has the name of the owner holds the row, whatever the fence; on both, for all verbs that run in steps."""
    real = leases._broken
    patch.setattr(leases, "_broken", lambda row, of, owner, _, now: real(row, of, owner, row.fence, now))


def lease_end_is_open(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """`<` where `<=` belongs: at the moment of its end a lease is still good."""
    real = leases._broken
    patch.setattr(
        leases,
        "_broken",
        lambda row, of, owner, fence, now: real(row, of, owner, fence, math.nextafter(now, -math.inf)),
    )


def no_fence_check_in_sql(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """The composed statements of PostgreSQL no longer compare the fence."""
    change_sql(patch, "postgresql", "locked.row_fence = locked.fence", "TRUE")


def lease_over_too_late(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """SQLite settles what is over only after its end."""
    change_sql(patch, "sqlite", "tasks.lease_until <= ", "tasks.lease_until < ")


def waits_a_moment_too_long(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """PostgreSQL hands a row out only after it became due."""
    change_sql(patch, "postgresql", "available_at <= ", "available_at < ")


def priorities_upside_down(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """The lowest priority comes first, on both."""
    patch.setattr(statement, "_statements", {})
    patch.setattr(claiming, "PRIORITIES", tuple(range(10)))


def collision_is_a_duplicate(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """The same identity with other content is taken for the same message, on both."""
    patch.setattr(InboxRepository, "_unknown", lambda room, met: [])


def backoff_of_the_next_attempt(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """The wait grows one attempt too early."""
    real = Settings.task_wait_seconds
    patch.setattr(Settings, "task_wait_seconds", lambda room, attempt: real(room, attempt + 1))


def journal_row_is_lost(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """Where a verb notes in steps, all after the second of its transitions is forgotten."""
    real = JournalRepository.record
    patch.setattr(JournalRepository, "record", lambda room, moves: real(room, moves[:2]))


def replies_all_say_done(patch: pytest.MonkeyPatch, worlds: Worlds) -> None:
    """A reply has another status than its task, where it is put in steps."""
    real = OutboxRepository._new
    patch.setattr(OutboxRepository, "_new", lambda room, *given: {**real(room, *given), "status": "done"})


def attempt_is_given_back(patch: pytest.MonkeyPatch, worlds: Worlds) -> Callable[[], object]:
    """Below SQLite: a task that goes back to pending gets its attempt back."""
    back = "NEW.state = 'pending' AND OLD.state = 'running'"
    free = "UPDATE tasks SET attempts = attempts - 1 WHERE task_id = NEW.task_id;"
    worlds[0].run(f"CREATE TRIGGER planted AFTER UPDATE ON tasks WHEN {back} BEGIN {free} END")
    return lambda: worlds[0].run("DROP TRIGGER planted")


def row_is_lost_below(patch: pytest.MonkeyPatch, worlds: Worlds) -> Callable[[], object]:
    """Below PostgreSQL: what was delivered is not noted."""
    worlds[1].run("CREATE RULE planted AS ON INSERT TO journal WHERE NEW.to_state = 'dead' DO INSTEAD NOTHING")
    return lambda: worlds[1].run("DROP RULE planted ON journal")


PLANTS: tuple[Plant, ...] = (
    no_fence_check,
    lease_end_is_open,
    no_fence_check_in_sql,
    lease_over_too_late,
    waits_a_moment_too_long,
    priorities_upside_down,
    collision_is_a_duplicate,
    backoff_of_the_next_attempt,
    journal_row_is_lost,
    replies_all_say_done,
    attempt_is_given_back,
    row_is_lost_below,
)


def change_sql(patch: pytest.MonkeyPatch, dialect_name: str, before: str, after: str) -> None:
    """Change the text of every statement for one dialect that has this in it."""

    class Changed(statement.Statement):
        __slots__ = ()

        def __init__(self, element: Any, dialect: Any) -> None:
            super().__init__(element, dialect)
            if dialect.name == dialect_name:
                self.text = self.text.replace(before, after)

    patch.setattr(statement, "_statements", {})
    patch.setattr(statement, "Statement", Changed)
