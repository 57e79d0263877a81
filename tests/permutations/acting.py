"""Those who act: each calls verbs through a queue's session in a thread of its own, and halts before every step.

A step is a statement, or the COMMIT or ROLLBACK of a transaction that has locked something. A statement that meets
nobody rides with the step before it: one that reads the clock while it stands still, or adds to the journal.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import sqlalchemy as sa

from recovery import Queue, RecoveryError
from recovery.testing.recording import RecordedQueue
from tests.permutations.noting import Notes

Call: TypeAlias = Callable[[RecordedQueue], Any]
State: TypeAlias = Literal["idle", "halts", "runs"]
PATIENCE_SECONDS: Final = 60.0
LOCKS: Final = re.compile(r"\b(INSERT|UPDATE|DELETE)\b")
"""What takes a lock that others can meet: `FOR NO KEY UPDATE` is among it."""
SHARED: Final = re.compile(r"\b(inbox|tasks|outbox)\b")
"""The statements of which one may change what another sees."""
SHARED_OR_CLOCK: Final = re.compile(rf"{SHARED.pattern}|clock_timestamp")
"""The same while the clock is turned."""
EVERY: Final = re.compile("")
"""All of them."""
SETTINGS: Final[dict[str, Any]] = {"allowed_sources": {"agent-a"}, "lease_seconds": 10.0, "backoff": 2.0}


class Changed:
    """What whoever steps the actors waits for; `committed` are the names of those who did, in order."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self.committed: list[str] = []

    def wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so; False where the time was up before."""
        with self._lock:
            return self._lock.wait_for(is_so, seconds)

    def tell(self) -> None:
        """Something has changed."""
        with self._lock:
            self._lock.notify_all()


class Actor:
    """One thread with one session. Between `begin` and the end of its last call it moves by `step` alone."""

    def __init__(self, name: str, url: str, changed: Changed) -> None:
        self.name = name
        self.state: State = "idle"
        self.notes = Notes(name)
        self.retries = 0
        self.answers: list[str] = []
        self.history: list[Any] = []
        self.next = ""
        self.between_calls = False
        self._changed = changed
        self._calls: Sequence[Call] = ()
        self._is_step = SHARED
        self._error: BaseException | None = None
        self._go = threading.Event()
        self._free, self._closed, self._has_locked = False, False, False
        self._queue = Queue.open(url, **SETTINGS)
        self._session = self._queue.session()
        self._door = RecordedQueue(self._session, self.notes)
        self._session.counts()  # The first connection of an engine asks for more than a verb does.
        self._listen()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        engine, held = self._queue.engine, self._session._held
        sa.event.listen(engine, "before_cursor_execute", self._before)
        sa.event.listen(engine, "after_cursor_execute", self._after)
        sa.event.listen(engine, "commit", self._ending("commit"))
        sa.event.listen(engine, "rollback", self._ending("rollback"))
        held._sleep = self._again

    def begin(self, calls: Sequence[Call], is_step: re.Pattern[str]) -> None:
        """Start calling; it halts before the first statement, and before each that has what makes it a step."""
        self._session.connection().info.clear()  # How far a connection has looked is no part of a beginning.
        self.notes.clear()
        self.retries, self.answers, self.history, self._error = 0, [], [], None
        self._calls, self._is_step, self._free = calls, is_step, False
        self.state, self.between_calls = "runs", True
        self._go.set()

    def step(self) -> None:
        """Let it do what it halts before."""
        assert self.state == "halts"
        self.state = "runs"
        self._go.set()

    def let_go(self) -> None:
        """Let it run to its end without halting."""
        self._free = True
        self._go.set()

    def is_still(self) -> bool:
        """Whether it halts, or has nothing left to do."""
        return self.state in ("idle", "halts")

    def line(self) -> Any:
        """The driver's own connection."""
        return self._session.connection().connection.driver_connection

    def raise_error(self) -> None:
        """Raise what it met and what is no answer of a verb."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread, and close the queue."""
        self._free = self._closed = True
        self._go.set()
        self._thread.join(PATIENCE_SECONDS)
        self._session.close()
        self._queue.close()

    def _live(self) -> None:
        while True:
            self._go.wait()
            self._go.clear()
            if self._closed:
                return
            if self.state == "idle":
                continue
            try:
                for call in self._calls:
                    self.between_calls = True
                    self.answers.append(self._answer(call))
            except BaseException as error:  # noqa: BLE001 - whoever steps it raises it
                self._error = error
            self._become("idle")

    def _answer(self, call: Call) -> str:
        try:
            return told(call(self._door))
        except RecoveryError as error:
            return type(error).__name__

    def _become(self, state: State) -> None:
        self.state = state
        self._changed.tell()

    def _halt(self, before: str) -> None:
        if threading.current_thread() is not self._thread or self._free:
            return
        self.next = before
        self._become("halts")
        self._go.wait()
        self._go.clear()
        self.between_calls = False
        if self._free:
            self.state = "runs"

    def _before(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if self._is_step.search(statement):
            self._halt(statement)
        self._has_locked = self._has_locked or LOCKS.search(statement) is not None

    def _after(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread() is self._thread:
            self.history.append((hash(statement), _result(cursor)))

    def _ending(self, how: str) -> Callable[[Any], None]:
        def ending(connection: Any) -> None:
            # One that has only read leaves nothing, and nobody waits for it: its end is no step.
            if threading.current_thread() is self._thread and self._has_locked:
                self._halt(how)
                self._has_locked = False
                self.history.append(how)
                if how == "commit":
                    self._changed.committed.append(self.name)

        return ending

    def _again(self, seconds: float) -> None:
        self.retries += 1


def told(answer: Any) -> str:
    """What a verb answered, in a form that can be compared. Of an error only its class."""
    if isinstance(answer, list):
        return f"[{', '.join(map(told, answer))}]"
    if hasattr(answer, "identity") and hasattr(answer, "error"):
        return str(answer.state or type(answer.error).__name__)
    return repr(answer)


def _result(cursor: Any) -> Any:
    found = cursor.pgresult
    cells = [found.get_value(row, column) for row in range(found.ntuples) for column in range(found.nfields)]
    return found.command_tuples, tuple(cells)
