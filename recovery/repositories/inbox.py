"""The inbox: what was accepted, once. A message and its task are stored together or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from recovery.admission import Admitted, admit
from recovery.errors import InvalidEnvelope, PayloadCollision, StatementFailed
from recovery.messages import Ack, AuthContext, Envelope
from recovery.repositories.base import Repository
from recovery.repositories.batches import BATCH_MAX
from recovery.repositories.receiving import store, stored

STORED: Final = "stored"
_TRIES: Final = 3
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
        """Store all of the messages (at most 10,000) or none, and return an ACK for each, in order.

        All are checked beforehand.
        """
        return self._store(self._once("admitted", lambda: _admitted(envelopes, auth, self)))

    def _store(self, admitted: Sequence[Admitted]) -> list[Ack]:
        first = _first_of_each(admitted)
        new: set[str] = set()
        missing = first
        for _ in range(_TRIES):
            new |= store(self, missing) if missing else set()
            missing = self._unknown([one for one in missing if one.task_id not in new])
            if not missing:
                return _acks(admitted, new)
        raise StatementFailed("the same message came and went three times while it was received; send it again.")

    def _unknown(self, met: Sequence[Admitted]) -> list[Admitted]:
        """Of messages that were not new, those that are not stored either. Raises PayloadCollision."""
        known = stored(self, [one.task_id for one in met]) if met else {}
        for one in met:
            if known.get(one.task_id, (one.fingerprint, None)) != (one.fingerprint, None):
                raise PayloadCollision(f"message {one.task_id}")
        return [one for one in met if one.task_id not in known]


def _first_of_each(admitted: Sequence[Admitted]) -> list[Admitted]:
    first: dict[str, Admitted] = {}
    for one in admitted:
        if first.setdefault(one.task_id, one).fingerprint != one.fingerprint:
            raise PayloadCollision(f"message {one.task_id}")
    return list(first.values())


def _acks(admitted: Sequence[Admitted], new: set[str]) -> list[Ack]:
    left = set(new)
    acks = []
    for one in admitted:
        acks.append(Ack(STORED, one.task_id, one.task_id not in left))
        left.discard(one.task_id)
    return acks


def _admitted(envelopes: Iterable[Envelope], auth: AuthContext, room: Repository) -> list[Admitted]:
    try:
        rest = iter(envelopes)
    except TypeError as error:
        raise InvalidEnvelope("envelopes must be something that can be iterated over.", field="envelopes") from error
    admitted: list[Admitted] = []
    for index, envelope in enumerate(rest):
        if index == BATCH_MAX:
            raise InvalidEnvelope(f"a batch has at most {BATCH_MAX} messages.", field="envelopes", limit=BATCH_MAX)
        try:
            admitted.append(admit(envelope, auth, room.settings))
        except Exception as error:
            error.add_note(f"in item {index} of the batch")
            raise
    return admitted
