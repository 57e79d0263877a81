"""Sections 3 and 4 of the contract in memory: receiving, and tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import ANY

from tests.model.accepted import (
    BATCH,
    Message,
    accept,
    is_int,
    is_key,
    json_text,
    queues_refused,
    said,
)
from tests.model.ledger import TASK_OPEN, Ledger, Task, found
from tests.model.things import Broken, Refused, Thing, Words, invalid, refused

DEFAULT = ("default",)


class Tasks(Ledger):
    """The verbs of the inbox and of the tasks."""

    # Receiving

    def receive(self, envelope: object, auth: object) -> Thing:
        return self._store([accept(envelope, auth, self.knobs.allowed_sources)])[0]

    def receive_all(self, envelopes: Any, auth: object) -> list[Thing]:
        if not isinstance(envelopes, list | Broken):
            raise invalid("envelopes")
        return self._store([accept(one, auth, self.knobs.allowed_sources) for one in handed(envelopes)])

    def receive_batch(self, envelopes: Any, auth: object) -> list[Thing]:
        acks: list[Thing] = []
        try:
            if not isinstance(envelopes, list | Broken):
                raise refused("TypeError")
            for envelope in handed(envelopes):
                acks.append(self.receive(envelope, auth))  # noqa: PERF401 - what was stored outlives an error
        except Refused as error:
            raise refused("BatchFailed", (acks, len(acks), error)) from None
        return acks

    def _store(self, messages: list[Message]) -> list[Thing]:
        prints = {task_id: row[4] for task_id, row in self.inbox.items()}
        if any(prints.setdefault(one.task_id, one.fingerprint) != one.fingerprint for one in messages):
            raise refused("PayloadCollision")
        return [self._stored(one) for one in messages]

    def _stored(self, one: Message) -> Thing:
        duplicate = one.task_id in self.inbox
        if not duplicate:
            self.inbox[one.task_id] = (
                one.task_id,
                one.principal,
                one.message_id,
                "task",
                one.fingerprint,
                None,
                None,
            )
            self._create(one)
        return Thing("Ack", {"ack": "stored", "task_id": one.task_id, "duplicate": duplicate})

    def _create(self, one: Message) -> None:
        state, reason = "pending", None
        if one.deadline <= self.now:
            state, reason = "expired", "deadline reached"
        elif one.hops >= self.knobs.max_hops:
            state, reason = "hop_limit", "hop budget reached"
        task = Task(
            task_id=one.task_id,
            state=state,
            max_attempts=one.max_attempts,
            available_at=self.now,
            arrival=len(self.tasks),
            queue=one.queue,
            priority=one.priority,
            payload=one.payload,
            deadline=one.deadline,
            hops=one.hops,
            received_at=self.now,
            reason=reason,
            ended_at=self.now if reason else None,
        )
        self.tasks[one.task_id] = task
        self.note("task", task, "new", reason or Words())
        if reason:
            self.put(task)

    # Claiming

    def claim(self, owner: object, queues: Any = DEFAULT) -> Thing | None:
        held = self.claim_batch(owner, 1, queues)
        return held[0] if held else None

    def claim_batch(self, owner: Any, limit: Any, queues: Any = DEFAULT) -> list[Thing]:
        check(owner=is_key(owner), limit=is_int(limit, 1, BATCH), queues=queues_refused(queues) is None)
        self.settle_tasks()
        due = [task for task in self.tasks.values() if task.state == "pending" and task.queue in queues]
        due = [task for task in due if task.available_at <= self.now < task.deadline]
        due.sort(key=lambda task: (-task.priority, task.available_at, task.arrival))
        return [self._hand_out(task, owner) for task in due[:limit]]

    def _hand_out(self, task: Task, owner: str) -> Thing:
        task.take(owner, self.now + self.knobs.lease_seconds, self.floor)
        task.state = "running"
        self.note("task", task, "pending", Words(), owner)
        return self._claim_of(task)

    def _claim_of(self, task: Task) -> Thing:
        values = {
            "task_id": task.task_id,
            "owner": task.owner,
            "fence": task.fence,
            "attempt": task.attempts,
            "payload": json.loads(task.payload),
            "lease_until": task.lease_until,
            "deadline": task.deadline,
        }
        return Thing("Claim", values)

    def settle_tasks(self) -> int:
        """End what is past its deadline, then take back what is past its lease; return how many."""
        in_order = [self.tasks[key] for key in sorted(self.tasks)]
        late = [task for task in in_order if task.state in TASK_OPEN and task.deadline <= self.now]
        for task in late:
            self.end(task, "expired", reason="deadline reached")
        over = [task for task in in_order if task.lease_until is not None and task.lease_until <= self.now]
        for task in sorted(over, key=lambda task: not task.spent):
            self._lease_over(task)
        return len(late) + len(over)

    def _lease_over(self, task: Task) -> None:
        if task.spent:
            self.end(task, "failed", reason="attempts exhausted")
        else:
            self._free(task, Words(), self.now)

    def _free(self, task: Task, why: Any, available_at: float) -> str:
        owner = task.owner
        task.drop("pending", available_at)
        self.note("task", task, "running", why, owner)
        return "pending"

    # Holding

    def renew(self, claim: Any) -> Thing:
        task = self.owned_task(a_claim(claim))
        task.lease_until = self.now + self.knobs.lease_seconds
        return self._claim_of(task).but(payload=claim["payload"])

    def finish(self, claim: Any, result: object) -> None:
        self._finish(*self._finish_of(claim, result))

    def _finish_of(self, claim: Any, result: object) -> tuple[Thing, str]:
        offences = [] if is_claim(claim) else ["claim"]
        try:
            text = json_text(result, "result", self.knobs.result_bytes_max)
        except Refused:
            offences.append("result")
            text = ""
        if offences:
            raise invalid(*offences)
        return claim, text

    def _finish(self, claim: Thing, text: str) -> None:
        task = found(self.tasks, claim["task_id"])
        if task is not None and self._is_again(task, claim, text):
            return
        self.end(self.owned_task(claim), "done", result=text)

    def _is_again(self, task: Task, claim: Thing, text: str) -> bool:
        same = type(claim["fence"]) is int and task.fence == claim["fence"] and task.last_owner == claim["owner"]
        return task.state == "done" and same and task.result == text

    def finish_batch(self, items: Any) -> list[Thing]:
        pairs = []
        for pair in handed(items):
            check(items=type(pair) is tuple and len(pair) == 2)
            pairs.append(pair)
        return [self._verdict(*pair) for pair in pairs]

    def _verdict(self, claim: Any, result: object) -> Thing:
        try:
            self._finish(*self._finish_of(claim, result))
        except Refused as error:
            return Thing("Verdict", {"identity": ANY, "state": None, "error": error})
        return Thing("Verdict", {"identity": claim["task_id"], "state": "done", "error": None})

    def finish_and_claim(self, claim: Any, result: object, queues: Any = DEFAULT) -> Thing | None:
        errors: list[Refused] = []
        text = ""
        if queues_refused(queues):
            errors.append(invalid("queues"))
        if is_claim(claim) and not is_key(claim["owner"]):
            # Nobody ever got such a claim: it is lost, and its owner is none that could claim.
            errors += [invalid("owner"), refused("Fenced")]
        try:
            _, text = self._finish_of(claim, result)
        except Refused as error:
            errors.append(error)
        any_of(errors)
        self._finish(claim, text)
        return self.claim(claim["owner"], queues)

    def fail(self, claim: Any, reason: object, *, retryable: bool = True) -> str:
        task = self.owned_task(a_claim(claim))
        text = said(reason)
        again_at = self.now + self.knobs.backoff.after(task.attempts)
        task.last_error = text
        if not retryable or task.spent:
            self.end(task, "failed", reason=text)
        elif again_at >= task.deadline:
            self.end(task, "expired", reason="deadline reached")
        else:
            self._free(task, text, again_at)
        return task.state

    def release(self, claim: Any) -> str:
        task = self.owned_task(a_claim(claim))
        if task.spent:
            self.end(task, "failed", reason="attempts exhausted", why=Words())
        else:
            self._free(task, Words(), self.now)
        return task.state

    def cancel(self, task_id: object) -> bool:
        task = found(self.tasks, task_id)
        if task is None or task.state not in TASK_OPEN:
            return False
        if task.deadline <= self.now:
            self.end(task, "expired", reason="deadline reached")
            return False
        self.end(task, "cancelled", reason="cancelled by scheduler")
        return True

    def has_open(self, queues: Any = DEFAULT) -> bool:
        check(queues=queues_refused(queues) is None)
        return any(task.queue in queues for task in self.tasks.values() if task.state in TASK_OPEN)


def handed(items: Any) -> Iterator[Any]:
    """What an iterable hands out, until it breaks."""
    yield from items.items if isinstance(items, Broken) else items
    if isinstance(items, Broken):
        raise refused("RuntimeError")


def is_claim(value: object) -> bool:
    """Whether it is exactly a Claim, whatever stands in it."""
    return isinstance(value, Thing) and value.kind == "Claim"


def a_claim(value: Any) -> Thing:
    """The claim, if it is one."""
    check(claim=is_claim(value))
    claim: Thing = value
    return claim


def check(**rules: bool) -> None:
    """Refuse, naming every argument that broke its rule."""
    if offences := [name for name, kept in rules.items() if not kept]:
        raise invalid(*offences)


def any_of(errors: list[Refused]) -> None:
    """Raise one error that stands for any of these."""
    if errors:
        whole = errors[0]
        for error in errors[1:]:
            whole |= error
        raise whole
