"""Settling what is due row by row, each in a transaction of its own, and naming what cannot be settled."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa

from recovery.errors import Busy, CommitUnknown, Misconfigured, ReadOnly, SchemaMismatch, Unavailable
from recovery.messages import Reconciled, Unsettled
from recovery.repositories.journal import REPLY, TASK
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.tasks import TaskRepository
from recovery.settings import Settings
from recovery.transactions import READ, REPEATABLE, Kind, Work

R = TypeVar("R")
Steps: TypeAlias = Generator[tuple[Work[Any], Kind], Any, R]
DATABASE = (Busy, Unavailable, CommitUnknown, ReadOnly, SchemaMismatch, Misconfigured)
"""These speak of the database, not of a row: they end the whole of it."""


def reconciling(settings: Settings) -> Steps[Reconciled]:
    """The transactions of one reconcile, one by one; whoever runs them sends each answer back in, or its error."""
    unsettled: list[Unsettled] = []
    rounds: tuple[tuple[str, Listing, Settling], ...] = (
        (TASK, lambda room, after: TaskRepository(room, settings).due_ids("deadline", after), _task(settings)),
        (TASK, lambda room, after: TaskRepository(room, settings).due_ids("lease_until", after), _task(settings)),
        (REPLY, lambda room, after: OutboxRepository(room, settings).due_ids(after), _reply(settings)),
    )
    counts = {TASK: 0, REPLY: 0}
    for subject, listing, settling in rounds:
        counts[subject] += yield from _round(subject, listing, settling, unsettled)
    return Reconciled(counts[TASK], counts[REPLY], tuple(dict.fromkeys(unsettled)))


Listing: TypeAlias = Callable[[sa.Connection, str], list[str]]
Settling: TypeAlias = Callable[[sa.Connection, str], bool]


def _task(settings: Settings) -> Settling:
    return lambda connection, identity: TaskRepository(connection, settings).settle_one(identity)


def _reply(settings: Settings) -> Settling:
    return lambda connection, identity: OutboxRepository(connection, settings).settle_one(identity)


def _round(subject: str, listing: Listing, settling: Settling, unsettled: list[Unsettled]) -> Steps[int]:
    settled, after = 0, ""
    while identities := (yield _listing(listing, after), READ):
        for identity in identities:
            try:
                settled += yield _settling(settling, identity), REPEATABLE
            except DATABASE:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one row, the others are settled
                unsettled.append(Unsettled(subject, identity, type(error).__name__))
        after = identities[-1]
    return settled


def _listing(listing: Listing, after: str) -> Work[list[str]]:
    return lambda connection: listing(connection, after)


def _settling(settling: Settling, identity: str) -> Work[bool]:
    return lambda connection: settling(connection, identity)
