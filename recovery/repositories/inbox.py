"""The inbox: what was accepted, once. A message and its task are stored together or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from recovery import clock
from recovery.admission import Admitted, admit
from recovery.backend import Backend
from recovery.errors import PayloadCollision, StatementFailed
from recovery.messages import Ack, AuthContext, Envelope
from recovery.repositories.base import Repository
from recovery.repositories.tasks import TaskRepository

STORED = "stored"
_TRIES = 3
"""A message may be purged between the INSERT that met it and the SELECT that looks for it; then it is new."""


class InboxRepository(Repository):
    """Accepts envelopes, deduplicates them, and creates their tasks."""

    def receive(self, envelope: Envelope, auth: AuthContext) -> Ack:
        """Store a message and its task. The same message again is a duplicate and gets the same task id.

        Raises InvalidEnvelope or Unauthorized before anything is written, and PayloadCollision where the same
        identity is stored with different content.
        """
        return self._store(self._once("admitted", lambda: [admit(envelope, auth, self.settings)]))[0]

    def receive_all(self, envelopes: Iterable[Envelope], auth: AuthContext) -> list[Ack]:
        """Store all of the messages or none, and return an ACK for each, in order. All are checked beforehand."""
        return self._store(self._once("admitted", lambda: _admitted(envelopes, auth, self)))

    def _store(self, admitted: Sequence[Admitted]) -> list[Ack]:
        # In id order, so that two batches with the same messages in another order cannot wait for each other.
        order = sorted(range(len(admitted)), key=lambda index: admitted[index].task_id)
        times: dict[int, float] = {}
        for index in order:
            time = self._insert(admitted[index])
            if time is not None:
                times[index] = time
        new = [admitted[index] for index in sorted(times)]
        TaskRepository(self.connection, self.settings).create(new, max(times.values(), default=0.0))
        return [Ack(STORED, one.task_id, index not in times) for index, one in enumerate(admitted)]

    def _insert(self, admitted: Admitted) -> float | None:
        """Insert the inbox row and return the time after its lock was got; None for a duplicate."""
        values = {name: getattr(admitted, name) for name in ("task_id", "principal", "message_id", "kind")}
        statement = _insert_new(self.backend, self.tables.inbox)
        for _ in range(_TRIES):
            # RETURNING is evaluated after the row is in, however long it waited for another sender of the same one.
            now = clock.now(self.connection, self.settings.clock)
            returning = statement.returning(now.label("now"))
            row = self.connection.execute(returning, values | {"fingerprint": admitted.fingerprint}).one_or_none()
            if row is not None:
                return float(row.now)
            if self._is_duplicate(admitted):
                return None
        raise StatementFailed("the same message came and went three times while it was received; send it again.")

    def _is_duplicate(self, admitted: Admitted) -> bool:
        inbox = self.tables.inbox
        stored = sa.select(inbox.c.fingerprint, inbox.c.scope_name).where(inbox.c.task_id == admitted.task_id)
        row = self.connection.execute(stored).one_or_none()
        if row is not None and (row.fingerprint, row.scope_name) != (admitted.fingerprint, None):
            raise PayloadCollision(f"message {admitted.task_id}")
        return row is not None


def _insert_new(backend: Backend, inbox: sa.Table) -> Any:
    return backend.insert_new(inbox, "task_id")


def _admitted(envelopes: Iterable[Envelope], auth: AuthContext, room: Repository) -> list[Admitted]:
    admitted = []
    for index, envelope in enumerate(envelopes):
        try:
            admitted.append(admit(envelope, auth, room.settings))
        except Exception as error:
            error.add_note(f"in item {index} of the batch")
            raise
    return admitted
