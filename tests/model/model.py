"""The whole model: sections 3 to 7 of the contract in memory, the outbox and the receiver among them.

It is written from `docs/contract.md` alone and imports nothing of the product, so that the two can only agree where
both say what the page says.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import ANY

from tests.model.accepted import BATCH, is_int, is_key, said, sha256
from tests.model.ledger import COLUMNS, REPLY_STATES, STATES, TASK_OPEN, Reply, Task, found, record
from tests.model.tasks import Tasks, check, handed
from tests.model.things import Refused, Thing, Words, refused

OUTCOME_UNKNOWN = "delivery lease expired; outcome unknown"


class Model(Tasks):
    """Every verb, in memory."""

    # The outbox

    def claim_reply(self, owner: object) -> Thing | None:
        held = self.claim_reply_batch(owner, 1)
        return held[0] if held else None

    def claim_reply_batch(self, owner: Any, limit: Any) -> list[Thing]:
        check(owner=is_key(owner), limit=is_int(limit, 1, BATCH))
        self.settle_replies()
        due = [one for one in self.outbox.values() if one.state == "pending" and one.available_at <= self.now]
        due.sort(key=lambda reply: (reply.available_at, reply.arrival))
        return [self._hand_over(reply, owner) for reply in due[:limit]]

    def _hand_over(self, reply: Reply, owner: str) -> Thing:
        reply.take(owner, self.now + self.knobs.delivery_lease_seconds, self.floor)
        reply.state = "sending"
        self.note("reply", reply, "pending", Words(), owner)
        return self._delivery_of(reply)

    def _delivery_of(self, reply: Reply) -> Thing:
        named = record("Delivery", reply, ("reply_id", "owner", "fence"))
        return named.but(attempt=reply.attempts, payload=reply.payload, lease_until=reply.lease_until)

    def settle_replies(self) -> int:
        """Free or bury the deliveries whose lease is over; return how many."""
        in_order = [self.outbox[key] for key in sorted(self.outbox)]
        over = [one for one in in_order if one.lease_until is not None and one.lease_until <= self.now]
        for reply in sorted(over, key=lambda reply: not reply.spent):
            reply.last_error = OUTCOME_UNKNOWN
            self._move(reply, "dead" if reply.spent else "pending", self.now, OUTCOME_UNKNOWN)
        return len(over)

    def _move(self, reply: Reply, state: str, available_at: float, why: Any) -> str:
        owner = reply.owner
        reply.drop(state, available_at if state == "pending" else None)
        reply.settled_at = None if state == "pending" else self.now
        self.note("reply", reply, "sending", why, owner)
        return state

    def renew_reply(self, delivery: Any) -> Thing:
        check(delivery=is_delivery(delivery))
        reply = self.owned_reply(delivery)
        reply.lease_until = self.now + self.knobs.delivery_lease_seconds
        return self._delivery_of(reply).but(payload=delivery["payload"])

    def settle(self, delivery: Any, *, delivered: Any, error: Any = None, permanent: Any = False) -> str:
        check(delivery=is_delivery(delivery), delivered=type(delivered) is bool, permanent=type(permanent) is bool)
        reply = self.owned_reply(delivery)
        if delivered:
            reply.last_error = None
            return self._move(reply, "sent", self.now, Words())
        reply.last_error = _kept(error)
        state = "dead" if permanent or reply.spent else "pending"
        again_at = self.now + self.knobs.delivery_backoff.after(reply.attempts)
        return self._move(reply, state, again_at, reply.last_error)

    def settle_batch(self, items: Any) -> list[Thing]:
        return [self._settled(item) for item in list(handed(items))]

    def _settled(self, item: Any) -> Thing:
        try:
            check(items=isinstance(item, Thing) and item.kind == "Settlement")
            state = self.settle(**item.fields)
        except Refused as error:
            return Thing("Verdict", {"identity": ANY, "state": None, "error": error})
        return Thing("Verdict", {"identity": item["delivery"]["reply_id"], "state": state, "error": None})

    def dispatch_once(self, way: str, owner: object = "dispatcher") -> Thing | None:
        """`way` names what the receiver does; see `receivers`."""
        if way == "none":
            raise refused("Misconfigured")
        delivery = self.claim_reply(owner)
        if delivery is None:
            return None
        outcome: dict[str, Any] = {"delivered": False}
        duplicate = False
        try:
            duplicate = self._reach(way, delivery)
            outcome["delivered"] = True
        except Refused as error:
            permanent = bool(error.names & {"PayloadCollision", "Unauthorized", "InvalidEnvelope"})
            part = "different content" if "PayloadCollision" in error.names else str(error.detail or "")
            outcome |= {"error": Words(part), "permanent": permanent}
        state = self.settle(delivery, **outcome)
        return Thing("Dispatched", {"reply_id": delivery["reply_id"], "state": state, "duplicate": duplicate})

    def _reach(self, way: str, delivery: Thing) -> bool:
        """What the receiver does; whether it had the reply already, if it confirmed."""
        if way == "slow":
            self.now += self.knobs.delivery_lease_seconds
        if way in {"stores", "slow", "loses the answer"}:
            duplicate: bool = self.accept(delivery["reply_id"], delivery["payload"])["duplicate"]
            if way == "loses the answer":
                raise refused("TimeoutError", "ACK lost")
            return duplicate
        if way in {"refuses", "finds it invalid"}:
            raise refused("Unauthorized" if way == "refuses" else "InvalidEnvelope", "not for me")
        raise refused("Exception", "on fire" if way == "breaks" else "")

    # The receiver

    def accept(self, reply_id: Any, payload: Any, apply: str | None = None) -> Thing:
        check(reply_id=is_key(reply_id), payload=is_storable(payload))
        known = self.receipts.get(reply_id)
        if known is not None and known[2] != payload:
            raise refused("PayloadCollision")
        if known is None:
            if apply == "breaks":
                raise refused("ZeroDivisionError")
            self.receipts[reply_id] = (reply_id, sha256(payload), payload, self.now)
            self.effects[reply_id] = self.now
        return Thing("Receipt", {"ack": "stored", "reply_id": reply_id, "duplicate": known is not None})

    def seen(self, reply_id: object) -> bool:
        return found(self.receipts, reply_id) is not None

    def effect_count(self) -> int:
        return len(self.effects)

    # What is due, and what is read

    def reconcile(self) -> Thing:
        tasks = self.settle_tasks()
        return Thing("Reconciled", {"tasks": tasks, "replies": self.settle_replies(), "unsettled": ()})

    def task(self, task_id: object) -> Thing | None:
        task = found(self.tasks, task_id)
        return None if task is None else self._task(task)

    def _task(self, task: Task) -> Thing:
        _, principal, message_id, _, fingerprint, _, _ = self.inbox[task.task_id]
        stored = record("Task", task, COLUMNS["tasks"])
        return stored.but(principal=principal, message_id=message_id, fingerprint=fingerprint)

    def replies(self, task_id: Any = None, *, limit: Any = 10_000) -> list[Thing]:
        check(limit=is_int(limit, 1, 100_000))
        wanted = [one for one in self.outbox.values() if task_id is None or one.task_id == task_id]
        wanted.sort(key=lambda reply: reply.arrival)
        return [record("Reply", reply, COLUMNS["outbox"]) for reply in wanted[:limit]]

    def counts(self) -> Thing:
        tasks = Counter(task.state for task in self.tasks.values())
        replies = Counter(reply.state for reply in self.outbox.values())
        return Thing(
            "Counts",
            {
                "received": len(self.inbox),
                "open": {state: tasks[state] for state in TASK_OPEN},
                "ended": {state: tasks[state] for state in STATES if state not in TASK_OPEN},
                "delivery": {state: replies[state] for state in REPLY_STATES},
            },
        )

    def explain(self, task_id: object) -> Thing | None:
        """The facts of an explanation; its words are the product's, and only the same on both."""
        task = found(self.tasks, task_id)
        if task is None:
            return None
        steps = [Thing("Transition", dict(zip(STEP, row, strict=True))) for row in self.journal if row[1] == task_id]
        replies = self.replies(task_id)
        facts = {
            "task_id": task_id,
            "as_of": self.now,
            "task": self._task(task),
            "reply": replies[0] if replies else None,
            "timeline": tuple(steps),
        }
        return Thing("Explanation", facts | dict.fromkeys(("received", "work", "ending", "delivery", "next"), ANY))


STEP = ("at", "task_id", "subject", "from_state", "to_state", "owner", "fence", "attempt", "why")


def is_delivery(value: object) -> bool:
    """Whether it is exactly a Delivery, whatever stands in it."""
    return isinstance(value, Thing) and value.kind == "Delivery"


def is_storable(payload: object) -> bool:
    """Whether it is a text that both backends can keep."""
    if type(payload) is not str or "\0" in payload:
        return False
    try:
        payload.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kept(error: object) -> Any:
    """What is kept of the reason why a reply was not delivered."""
    if error is None:
        return Words()
    return error if isinstance(error, Words) else said(error)
