"""A queue and a receiver whose every verb is written to a history: what was asked, and then what was answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from recovery.errors import CommitUnknown
from recovery.messages import AuthContext, Claim, Delivery, Envelope
from recovery.testing.history import History
from recovery.testing.promises import canonical, reply_id, sha256

R = TypeVar("R")
REPLY: Final = reply_id("")
LATER_FIELDS: Final = {"queue": "default", "priority": 0}
"""Fields that take part in a fingerprint only where they differ from these."""


class Recorded:
    """Runs calls, and writes down what came of each."""

    def __init__(self, history: History) -> None:
        self.history = history

    def note(self, name: str, call: Callable[[], R], told: Callable[[R], Mapping[str, Any]], **asked: Any) -> R:
        """Run one operation. Whatever it raises is written down and raised."""
        pending = self.history.invoke(name, **asked)
        try:
            answer = call()
        except CommitUnknown as error:
            pending.unknown(error)
            raise
        except Exception as error:
            pending.fail(error)
            raise
        pending.ok(**told(answer))
        return answer


class RecordedQueue(Recorded):
    """The verbs of a Queue (or a Session of it) that actors use, written down."""

    def __init__(self, queue: Any, history: History) -> None:
        super().__init__(history)
        self.queue = queue

    def receive(self, envelope: Envelope, auth: AuthContext) -> Any:
        return self.note(
            "receive",
            lambda: self.queue.receive(envelope, auth),
            lambda ack: {"task_id": ack.task_id, "duplicate": ack.duplicate},
            principal=auth.principal,
            message_id=envelope.message_id,
            fingerprint=fingerprint(envelope),
        )

    def claim(self, owner: str, limit: int = 1, queues: Sequence[str] = ("default",)) -> list[Claim]:
        """Up to `limit` claims. Asks `claim` for one, and `claim_batch` for more."""

        def call() -> list[Claim]:
            if limit > 1:
                return list(self.queue.claim_batch(owner, limit, queues))
            one = self.queue.claim(owner, queues)
            return [] if one is None else [one]

        return self.note("claim", call, _claims, owner=owner, limit=limit)

    def renew(self, claim: Claim) -> Claim:
        def renew() -> Claim:
            renewed: Claim = self.queue.renew(claim)
            return renewed

        return self.note("renew", renew, _lease, **_held(claim))

    def finish(self, claim: Claim, result: Any) -> None:
        mark = sha256(canonical(result))
        self.note("finish", lambda: self.queue.finish(claim, result), lambda _: {}, result=mark, **_held(claim))

    def finish_and_claim(self, claim: Claim, result: Any) -> Claim | None:
        def call() -> Claim | None:
            following: Claim | None = self.queue.finish_and_claim(claim, result)
            return following

        mark = sha256(canonical(result))
        return self.note(
            "finish_and_claim", call, lambda one: _claims([one] if one else []), result=mark, limit=1, **_held(claim)
        )

    def fail(self, claim: Claim, reason: str, *, retryable: bool = True) -> str:
        return self.note(
            "fail",
            lambda: str(self.queue.fail(claim, reason, retryable=retryable)),
            _state,
            retryable=retryable,
            **_held(claim),
        )

    def release(self, claim: Claim) -> str:
        return self.note("release", lambda: str(self.queue.release(claim)), _state, **_held(claim))

    def cancel(self, identity: str) -> bool:
        return self.note(
            "cancel", lambda: bool(self.queue.cancel(identity)), lambda done: {"cancelled": done}, task_id=identity
        )

    def claim_reply(self, owner: str, limit: int = 1) -> list[Delivery]:
        """Up to `limit` deliveries."""

        def call() -> list[Delivery]:
            if limit > 1:
                return list(self.queue.claim_reply_batch(owner, limit))
            one = self.queue.claim_reply(owner)
            return [] if one is None else [one]

        return self.note("claim_reply", call, _deliveries, owner=owner, limit=limit)

    def renew_reply(self, delivery: Delivery) -> Delivery:
        def renew() -> Delivery:
            renewed: Delivery = self.queue.renew_reply(delivery)
            return renewed

        return self.note("renew_reply", renew, _lease, **_sent(delivery))

    def settle(self, delivery: Delivery, *, delivered: bool, error: object = None, permanent: bool = False) -> str:
        return self.note(
            "settle",
            lambda: str(self.queue.settle(delivery, delivered=delivered, error=error, permanent=permanent)),
            _state,
            delivered=delivered,
            **_sent(delivery),
        )

    def reconcile(self) -> Any:
        return self.note(
            "reconcile",
            self.queue.reconcile,
            lambda done: {"tasks": done.tasks, "replies": done.replies, "unsettled": len(done.unsettled)},
        )


class RecordedReceiver(Recorded):
    """A Receiver, written down."""

    def __init__(self, receiver: Any, history: History) -> None:
        super().__init__(history)
        self.receiver = receiver

    def accept(self, identity: str, payload: str, apply: Callable[..., object] | None = None) -> Any:
        return self.note(
            "accept",
            lambda: self.receiver.accept(identity, payload, apply),
            lambda receipt: {"duplicate": receipt.duplicate},
            reply_id=identity,
            payload=sha256(payload),
        )


def fingerprint(envelope: Envelope) -> str:
    """The fingerprint of a message, by section 1 of the contract."""
    fields: dict[str, Any] = {
        "deadline": float(envelope.deadline),  # type: ignore[arg-type] # Senders here give seconds.
        "hops": envelope.hops,
        "kind": envelope.kind,
        "max_attempts": envelope.max_attempts,
        "message_id": envelope.message_id,
        "payload": envelope.payload,
        "sender": envelope.sender,
    }
    later = {name: getattr(envelope, name) for name in LATER_FIELDS}
    fields |= {name: value for name, value in later.items() if value != LATER_FIELDS[name]}
    return f"v1:{sha256(canonical(fields))}"


def _held(claim: Claim) -> dict[str, Any]:
    return {"task_id": claim.task_id, "owner": claim.owner, "fence": claim.fence}


def _sent(delivery: Delivery) -> dict[str, Any]:
    return {"task_id": delivery.reply_id.removeprefix(REPLY), "owner": delivery.owner, "fence": delivery.fence}


def _claims(claims: Sequence[Claim]) -> dict[str, Any]:
    return {
        "claims": [
            {"task_id": one.task_id, "fence": one.fence, "attempt": one.attempt, "lease_until": one.lease_until}
            for one in claims
        ]
    }


def _deliveries(deliveries: Sequence[Delivery]) -> dict[str, Any]:
    return {
        "claims": [
            {
                "task_id": one.reply_id.removeprefix(REPLY),
                "fence": one.fence,
                "attempt": one.attempt,
                "lease_until": one.lease_until,
                "payload": sha256(one.payload),
            }
            for one in deliveries
        ]
    }


def _lease(renewed: Claim | Delivery) -> dict[str, Any]:
    return {"lease_until": renewed.lease_until}


def _state(state: str) -> dict[str, Any]:
    return {"state": state}
