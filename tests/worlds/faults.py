"""Faults of the product, one promise broken in each: what the explorer must find."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import CommitUnknown, states
from recovery.backend import statement
from recovery.queue import Verbs
from recovery.repositories import TaskRepository, claiming, leases, sending
from recovery.repositories.outbox import OutboxRepository
from recovery.repositories.receipts import ReceiptRepository
from recovery.settings import Settings
from recovery.transactions import REPEATABLE, Transactions
from recovery.verbs import verb
from tests.worlds.named import LATE, OUTBOX, WHOLE, WORKERS
from tests.worlds.steps import World

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """How to plant it, the world in which it shows, how many steps that takes at the least, and the last of them."""

    plant: Plant
    world: World
    steps: int
    last: str


def _judging(change: Callable[[Any, Any], dict[str, Any]]) -> Plant:
    """A claim is judged by a row, fence, owner or time other than the true one."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = leases.broken

        def broken(row: Any, leased: Any, identity: str, owner: str, fence: int, now: float) -> Any:
            asked = {"row": row, "owner": owner, "fence": fence, "now": now}
            asked |= change(row, now) if row is not None else {}
            return real(asked["row"], leased, identity, asked["owner"], asked["fence"], asked["now"])

        patch.setattr(leases, "broken", broken)

    return plant


def _no_deadline(row: Any, _now: float) -> dict[str, Any]:
    return {"row": row._replace(deadline=math.inf)} if hasattr(row, "deadline") else {}


def _cancel_without_reply(patch: pytest.MonkeyPatch) -> None:
    real = OutboxRepository.put

    def put(self: OutboxRepository, ended: Any, now: float) -> list[dict[str, Any]]:
        return real(self, [one for one in ended if one[1] != states.CANCELLED], now)

    patch.setattr(OutboxRepository, "put", put)


def _attempt_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = claiming._held

    def held(leased: Any, values: dict[str, Any]) -> sa.Update:
        return real(leased, values).values(attempts=leased.table.c.attempts)

    _fresh_statements(patch)
    patch.setattr(claiming, "_held", held)


def _fence_not_raised(patch: pytest.MonkeyPatch) -> None:
    real = claiming._held

    def held(leased: Any, values: dict[str, Any]) -> sa.Update:
        return real(leased, values).values(fence=sa.literal_column("1"))

    _fresh_statements(patch)
    patch.setattr(claiming, "_held", held)


def _fresh_statements(patch: pytest.MonkeyPatch) -> None:
    """Statements are built once in a process: what the fault builds must not outlive it."""
    patch.setattr(statement, "_statements", {})


def _release_gives_back(patch: pytest.MonkeyPatch) -> None:
    def release(self: TaskRepository, claim: Any) -> str:
        row, now = self._hold(claim)
        return self._free([row], now, "released", now, {"attempts": row.attempts - 1})

    patch.setattr(Verbs, "release", verb(TaskRepository, release))


def _cancel_after_the_deadline(patch: pytest.MonkeyPatch) -> None:
    def cancel(self: TaskRepository, task_id: str) -> bool:
        row = leases.lock(self.connection, self.leased, task_id)
        if row is None or row.state in states.TASK_ENDED:
            return False
        said = states.CANCELLED_BY_SCHEDULER
        self._end([row], self.now(), states.CANCELLED, said, reason=said)
        return True

    patch.setattr(Verbs, "cancel", verb(TaskRepository, cancel))


def _receipt_not_deduplicated(patch: pytest.MonkeyPatch) -> None:
    real = ReceiptRepository._insert
    patch.setattr(ReceiptRepository, "_insert", lambda self, *given: real(self, *given) or True)


def _revived(patch: pytest.MonkeyPatch) -> None:
    def due_ids(self: TaskRepository, column: str, after: str = "") -> list[str]:
        found = sa.text("SELECT task_id FROM tasks WHERE state = 'failed' AND task_id > :after")
        return list(self.connection.execute(found, {"after": after}).scalars())

    def settle_one(self: TaskRepository, task_id: str) -> bool:
        back = "state = 'running', ended_at = NULL, reason = NULL, owner = 'a', lease_until = deadline"
        failed = "WHERE task_id = :id AND state = 'failed'"
        revived = self.connection.execute(sa.text(f"UPDATE tasks SET {back} {failed}"), {"id": task_id})
        return revived.rowcount == 1

    patch.setattr(TaskRepository, "due_ids", due_ids)
    patch.setattr(TaskRepository, "settle_one", settle_one)


def _not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    def settle_one(self: TaskRepository, task_id: str) -> bool:
        row = leases.lock(self.connection, self.leased, task_id)
        if row is not None and row.state == states.RUNNING:
            self._lease_over([row], self.now())
        return row is not None and row.state == states.RUNNING

    patch.setattr(TaskRepository, "settle_one", settle_one)


def _finish_asked_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskRepository, "is_done_by", lambda *_: False)


def _claim_repeated(patch: pytest.MonkeyPatch) -> None:
    look = TaskRepository.has_work
    patch.setattr(Verbs, "claim", verb(TaskRepository, TaskRepository.claim, REPEATABLE, look=look))


def _answer_before_commit(patch: pytest.MonkeyPatch) -> None:
    real = Transactions.run

    def run(self: Transactions, work: Any, kind: Any) -> Any:
        said: list[Any] = []

        def noted(connection: sa.Connection) -> Any:
            said.append(work(connection))
            return said[-1]

        try:
            return real(self, noted, kind)
        except CommitUnknown:
            return said[-1]

    patch.setattr(Transactions, "run", run)


def _poller_overlooks_leases(patch: pytest.MonkeyPatch) -> None:
    def something_over(leased: Any, now: Any, since: Any = None) -> Any:
        return sa.false()

    _fresh_statements(patch)
    real = claiming._anything

    def anything(leased: Any, queues: int) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(claiming, "_something_over", something_over)
            return real(leased, queues)

    patch.setattr(claiming, "_anything", anything)


def _no_backoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settings, "task_wait_seconds", lambda *_: 0.0)


def _refused_is_temporary(patch: pytest.MonkeyPatch) -> None:
    real = sending._target

    def target(row: Any, item: Any) -> str:
        return states.PENDING if item.permanent and row.attempts < row.max_attempts else real(row, item)

    patch.setattr(sending, "_target", target)


FAULTS: dict[str, Fault] = {
    "the fence is not compared": Fault(
        _judging(lambda row, _: {"fence": row.fence}), WORKERS, 5, "a: fail with claim 635e97/1"
    ),
    "a lease that ends now still holds": Fault(
        _judging(lambda _, now: {"now": math.nextafter(now, 0.0)}), WORKERS, 5, "a: fail with claim 635e97/1"
    ),
    "a lease that nobody took is not over": Fault(
        _judging(lambda row, _: {"row": row._replace(lease_until=math.inf)}), WORKERS, 5, "a: fail with claim 635e97/1"
    ),
    "the deadline is not checked": Fault(_judging(_no_deadline), LATE, 4, "a: fail with claim 635e97/1"),
    "a cancelled task has no reply": Fault(_cancel_without_reply, WORKERS, 2, "canceller: cancel m1"),
    "an attempt is not counted": Fault(_attempt_not_counted, WORKERS, 2, "a: claim"),
    "a fence is not raised": Fault(_fence_not_raised, WORKERS, 4, "a: claim"),
    "release gives the attempt back": Fault(_release_gives_back, WORKERS, 3, "a: release with claim 635e97/1"),
    "cancel does not look at the deadline": Fault(_cancel_after_the_deadline, LATE, 3, "canceller: cancel m1"),
    "a receipt is not deduplicated": Fault(
        _receipt_not_deduplicated, OUTBOX, 3, "d: send with delivery 635e97/1, and loses the answer after commit 1"
    ),
    "reconcile revives what has failed": Fault(_revived, WORKERS, 4, "maintenance: settle task m1"),
    "reconcile does not look at a row again": Fault(_not_looked_at_again, WORKERS, 3, "maintenance: settle task m1"),
    "a finish that is asked again is refused": Fault(
        _finish_asked_again, WORKERS, 4, "a: finish x with claim 635e97/1"
    ),
    "a claim is repeated blindly": Fault(_claim_repeated, WORKERS, 2, "a: claim, and loses the answer before commit 1"),
    "the answer comes before the commit": Fault(
        _answer_before_commit, WHOLE, 2, "canceller: cancel m1, and loses the answer before commit 1"
    ),
    "a poller overlooks what is due": Fault(_poller_overlooks_leases, WORKERS, 5, "a: claim, polling"),
    "a failure is tried again at once": Fault(_no_backoff, WORKERS, 3, "a: fail with claim 635e97/1"),
    "a refusal is tried again": Fault(_refused_is_temporary, OUTBOX, 3, "d: settle refused with delivery 635e97/1"),
}
