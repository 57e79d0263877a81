"""A worker: claims a task, keeps its lease alive while the handler runs, and stores how it ended."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from recovery.accepting import safe_text
from recovery.backend import is_database_error
from recovery.errors import Busy, CommitUnknown, Fenced, InvalidEnvelope, RecoveryError, Unavailable
from recovery.handlers import Handler, Permanent
from recovery.messages import DEFAULT_QUEUES, Claim
from recovery.queue import Queue
from recovery.runtime.looping import loop, owner_name
from recovery.runtime.stopping import Stop

STORE_TRIES: Final = 5
STORE_PAUSE_SECONDS: Final = 0.2
LOST: Final = "lost"
"""Not a state: the claim was over before the work was, and somebody else has the task or will have it."""


@dataclass(frozen=True, slots=True)
class Worked:
    """What became of one claim: the task's state after it (or `lost`), and why where it was not done.

    `error` is made to be printed: it has the class of an exception and where it was raised, never its text, which can
    hold what the task is about. The text is stored with the task, for `explain`.
    """

    task_id: str
    state: str
    fence: int
    attempt: int
    error: str | None = None


class Worker:
    """Works a queue under one owner's name. A signal hands its task back before it ends."""

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        stop: Stop,
        *,
        owner: str | None = None,
        queues: Sequence[str] = DEFAULT_QUEUES,
        tell: Callable[[Worked], object] = lambda _: None,
    ) -> None:
        self._queue = queue
        self._queues = queues
        self._handler = handler
        self._stop = stop
        self._owner = owner_name() if owner is None else owner
        self._tell = tell

    def run(self, *, drain: bool = False, once: bool = False) -> None:
        """Work until stopped.

        With `once` at most one task; with `drain` until no task of its queues is open, waiting for
        retries and for the leases of dead workers to end.
        """
        loop(self._stop, self._one, self._is_open, drain=drain, once=once)

    def _is_open(self) -> bool:
        return self._queue.has_open(self._queues)

    def _one(self) -> bool:
        claim = self._queue.claim(self._owner, self._queues)
        if claim is None:
            return False
        state, error = self._work(claim)
        self._tell(Worked(claim.task_id, state, claim.fence, claim.attempt, error))
        return True

    def _work(self, claim: Claim) -> tuple[str, str | None]:
        try:
            with Heartbeat(self._queue, claim), self._stop.interruptible():
                result = self._handler(claim)
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, and the task must outlive it
            # Whatever a handler made of the signal that stopped it, it is no fault of the work.
            if self._stop.wanted:
                return self._stored(claim, lambda: self._queue.release(claim), "released")
            return self._failed(claim, reason(error), where(error), retryable=not isinstance(error, Permanent))
        try:
            return self._stored(claim, lambda: self._finished(claim, result), None)
        except InvalidEnvelope as error:
            said = f"the result was refused: {error}"
            return self._failed(claim, said, said, retryable=False)

    def _finished(self, claim: Claim, result: object) -> str:
        self._queue.finish(claim, result)
        return "done"

    def _failed(self, claim: Claim, kept: str, told: str, *, retryable: bool) -> tuple[str, str | None]:
        return self._stored(claim, lambda: self._queue.fail(claim, kept, retryable=retryable), told)

    def _stored(self, claim: Claim, store: Callable[[], str], error: str | None) -> tuple[str, str | None]:
        """Store an outcome, again where the database could not just now; the lease bounds how long that helps."""
        for tries_left in range(STORE_TRIES - 1, -1, -1):
            try:
                return store(), error
            except Fenced as lost:
                return LOST, f"{error}; {lost.why}" if error else lost.why
            except (Busy, Unavailable, CommitUnknown):
                # After CommitUnknown a second try answers for itself: what was stored fences it.
                if not tries_left:
                    raise
                time.sleep(STORE_PAUSE_SECONDS)
        raise AssertionError("unreachable")


def reason(error: BaseException) -> str:
    """What is stored of a handler's exception, and sent in the reply: its class and text, but no database's text."""
    name = type(error).__name__
    # It quotes statements and rows, and the reply goes to somebody else.
    return f"{name} from a database" if is_database_error(error) else f"{name}: {safe_text(error)}"


def where(error: BaseException) -> str:
    """What may be printed of a handler's exception: its class, and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{at}"


class Heartbeat:
    """Renews a claim every third of its lease, in a thread of its own, so that the handler cannot hold it up."""

    def __init__(self, queue: Queue, claim: Claim) -> None:
        self._queue = queue
        self._claim = claim
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="recovery-heartbeat")

    def _beat(self) -> None:
        while not self._over.wait(self._queue.settings.lease_seconds / 3):
            try:
                self._queue.renew(self._claim)
            except Fenced:
                return  # The finish will be told the same.
            except RecoveryError:
                continue  # Tried again at the next beat; if it stays so, the lease ends as it must.

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
