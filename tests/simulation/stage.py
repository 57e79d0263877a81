"""What all actors of a simulation share: the product at both ends, what goes wrong with it, and the history."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from recovery import AuthContext, Envelope, ManualClock, Queue, Receiver, RecoveryError
from recovery.transactions import Transactions
from tests.simulation.breaking import Commits
from tests.simulation.scheduling import Scheduler
from tests.worlds import contents as stored
from tests.worlds.contents import Contents
from tests.worlds.machine import said
from tests.worlds.memory import Died, Fate

START: Final = 1000.0
SENDER: Final = "agent-a"
AUTH: Final = AuthContext(SENDER)
LEASE_SECONDS, BACKOFF_SECONDS = 4.0, 1.5
DELIVERY_ATTEMPTS: Final = 4
MAX_HOPS: Final = 4
RECONCILE_COMMITS: Final = 6
"""A reconcile has several commits: one for each look, and one for each row that it settles."""
FATES: Final = tuple(partial(Fate, kind, place) for kind in ("dies", "doubt") for place in ("before", "after"))


class Event(NamedTuple):
    """One thing that happened: when, who, what, with which row under which fence, the answer, and what went wrong."""

    at: float
    actor: str
    verb: str
    row: str
    fence: int
    answer: Any
    fate: str

    def __str__(self) -> str:
        row = f" {self.row}/{self.fence}" if self.row else ""
        fate = f", {self.fate}" if self.fate else ""
        return f"{self.at:.1f} {self.actor}: {self.verb}{row} -> {self.answer!r}{fate}"


class Stage:
    """The product at both ends over two databases, a clock, a scheduler, and all that happened."""

    def __init__(self, urls: tuple[str, str], seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = ManualClock(START)
        times = {"lease_seconds": LEASE_SECONDS, "backoff": BACKOFF_SECONDS, "delivery_attempts": DELIVERY_ATTEMPTS}
        self.queue = Queue.open(urls[0], allowed_sources={SENDER}, clock=self.clock, max_hops=MAX_HOPS, **times)
        self.receiver = Receiver.open(urls[1], clock=self.clock)
        with self.receiver.engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE applied (reply_id TEXT NOT NULL)"))
        for end in (self.queue, self.receiver):
            _spare_the_disk(end.engine)
            transactions: Transactions = end._transactions
            transactions._sleep = lambda _seconds: None
        self._commits = {"queue": Commits(self.queue.engine), "receiver": Commits(self.receiver.engine)}
        self.scheduler = Scheduler(self.random, self.clock, self.note)
        self.history: list[Event] = []
        self.names: dict[str, str] = {}
        self.acknowledged: list[Envelope] = []

    def close(self) -> None:
        """Close both ends."""
        self.queue.close()
        self.receiver.close()

    def note(self, actor: str, what: str) -> None:
        """Write down what happened without the product."""
        self.history.append(Event(self.clock.now, actor, what, "", 0, None, ""))

    def call(self, actor: str, verb: str, of: Any, do: Callable[[], Any], end: str = "queue") -> Any:
        """Do something with the product; return its answer, or its error. It may go wrong at a commit."""
        fate = self._fate(verb)
        commits = self._commits[end]
        commits.arm(fate)
        if self.queue.quiet is not None:
            self.queue.quiet.clear()  # A poller's look is a transaction that only one backend has.
        answer: Any = Died()
        try:
            answer = do()
        except RecoveryError as error:
            answer = error
        finally:
            met = commits.disarm()
            self._tell(actor, verb, of, answer, fate if met else None)
        return answer

    def _fate(self, verb: str) -> Fate | None:
        if not self.scheduler.happens(self.scheduler.chances.bad_commit):
            return None
        commit = self.random.randint(1, RECONCILE_COMMITS) if verb == "reconcile" else 1
        return self.random.choice(FATES)(commit)

    def _tell(self, actor: str, verb: str, of: Any, answer: Any, fate: Fate | None) -> None:
        row = of if isinstance(of, str) else getattr(of, "task_id", getattr(of, "reply_id", ""))
        told = self._named(said(answer))
        event = Event(self.clock.now, actor, verb, self._named(row), getattr(of, "fence", 0), told, str(fate or ""))
        self.history.append(event)

    def _named(self, value: Any) -> Any:
        """The same with a message's name in the place of its task's id: it reads better, and shows nothing."""
        if isinstance(value, str):
            head, tail = ("reply:", value[6:]) if value.startswith("reply:") else ("", value)
            return head + self.names.get(tail, tail)
        return tuple(self._named(one) for one in value) if isinstance(value, tuple) else value

    def contents(self) -> Contents:
        """Both databases, by plain SQL."""
        with self.queue.engine.connect() as here, self.receiver.engine.connect() as there:
            return Contents(stored.read_queue(_select(here)), stored.read_receiver(_select(there)))


def _spare_the_disk(engine: sa.Engine) -> None:
    """Processes die here and machines do not: what SQLite wrote is there, on the disk or on its way."""
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda driver, _record: driver.execute("PRAGMA synchronous = OFF"))
        engine.dispose()


def _select(connection: sa.Connection) -> stored.Select:
    def select(statement: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        answer = connection.exec_driver_sql(statement)
        return tuple(answer.keys()), [tuple(row) for row in answer]

    return select
