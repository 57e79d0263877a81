"""The queue, for threads: every verb in one line.

A verb is one transaction. What it does stands in `repositories/`; how it begins, commits and fails in `transactions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from recovery import backend, delivery
from recovery.closing import Closing
from recovery.errors import BatchFailed, Misconfigured
from recovery.messages import Ack, AuthContext, Dispatched, Envelope, Reconciled
from recovery.opening import check, prepared
from recovery.overview import Overview
from recovery.reconciling import Steps, reconciling
from recovery.repositories import InboxRepository, OutboxRepository, TaskRepository
from recovery.settings import Settings
from recovery.transactions import READ, REPEATABLE, HeldTransactions, Kind, Runner, Savepoints, Transactions, Work
from recovery.verbs import verb

R = TypeVar("R")


class Verbs:
    """Every verb that is one transaction."""

    settings: Settings
    quiet: set[object] | None = None
    _runner: Runner

    def run(self, work: Work[R], kind: Kind) -> R:
        return self._runner.run(work, kind)

    receive = verb(InboxRepository, InboxRepository.receive, REPEATABLE)
    receive_all = verb(InboxRepository, InboxRepository.receive_all, REPEATABLE)
    claim = verb(TaskRepository, TaskRepository.claim, look=TaskRepository.has_work)
    claim_batch = verb(TaskRepository, TaskRepository.claim_batch, look=TaskRepository.has_work_for)
    renew = verb(TaskRepository, TaskRepository.renew, REPEATABLE)
    finish = verb(TaskRepository, TaskRepository.finish, REPEATABLE)
    finish_batch = verb(TaskRepository, TaskRepository.finish_batch, REPEATABLE)
    finish_and_claim = verb(TaskRepository, TaskRepository.finish_and_claim)
    fail = verb(TaskRepository, TaskRepository.fail)
    release = verb(TaskRepository, TaskRepository.release)
    cancel = verb(TaskRepository, TaskRepository.cancel)
    task = verb(TaskRepository, TaskRepository.task, READ)
    has_open = verb(TaskRepository, TaskRepository.has_open, READ)
    claim_reply = verb(OutboxRepository, OutboxRepository.claim_reply, look=OutboxRepository.has_work)
    claim_reply_batch = verb(OutboxRepository, OutboxRepository.claim_reply_batch, look=OutboxRepository.has_work_for)
    renew_reply = verb(OutboxRepository, OutboxRepository.renew_reply, REPEATABLE)
    settle = verb(OutboxRepository, OutboxRepository.settle)
    settle_batch = verb(OutboxRepository, OutboxRepository.settle_batch)
    replies = verb(OutboxRepository, OutboxRepository.replies, READ)
    explain = verb(Overview, Overview.explain, READ)
    counts = verb(Overview, Overview.counts, READ)


class Loops(Verbs):
    """The verbs that are several transactions; they are not offered inside the caller's own."""

    def receive_batch(self, envelopes: Iterable[Envelope], auth: AuthContext) -> list[Ack]:
        """Store messages one by one, each committed before the next is looked at, and return their ACKs.

        Raises BatchFailed at the first that fails, with the ACKs of those before it.
        """
        acks: list[Ack] = []
        try:
            for envelope in envelopes:
                acks.append(self.receive(envelope, auth))  # noqa: PERF401 - what was stored must outlive an error
        except Exception as error:
            raise BatchFailed(acks, len(acks), error) from error
        return acks

    def dispatch_once(self, receiver: Any, owner: str = "dispatcher") -> Dispatched | None:
        """Claim one reply, send it outside any transaction, and store what became of it; None where none is due.

        `receiver` has `accept(reply_id, payload)` and returns a Receipt. Whatever it raises is recorded; an error
        while the outcome is stored is raised, and leaves the reply `sending` until its lease ends.
        """
        if delivery.is_async(receiver):
            raise Misconfigured("an asynchronous receiver needs an AsyncQueue.")
        held = self.claim_reply(owner)
        if held is None:
            return None
        try:
            outcome = delivery.answered(receiver.accept(held.reply_id, held.payload), held)
        except Exception as error:  # noqa: BLE001 - a receiver may raise anything, and the reply must outlive it
            outcome = delivery.refused(error)
        state = self.settle(held, delivered=outcome.delivered, error=outcome.error, permanent=outcome.permanent)
        return Dispatched(held.reply_id, state, outcome.duplicate)

    def reconcile(self) -> Reconciled:
        """Settle everything that is due, row by row, and name what could not be settled."""
        return _driven(reconciling(self.settings), self.run)


class Queue(Closing, Loops):
    """Inbox, tasks and outbox in one database. Safe to share between threads."""

    def __init__(self, engine: sa.Engine, **settings: Any) -> None:
        """Use an engine of `open_engine(url)`, or one that went through `prepare_engine`. The caller disposes of it.

        Takes the same settings as `open`. Raises Misconfigured or SchemaMismatch; changes nothing.
        """
        self.settings = Settings(**settings)
        self.engine = prepared(engine)
        self._runner = self._transactions = Transactions(engine, self.settings.bounds)
        self._owned = False
        self.quiet = _quiet(engine)
        self.run(lambda connection: check(connection, self.settings.tables), READ)

    @classmethod
    def open(cls, url: str | sa.URL, **settings: Any) -> Self:
        """Open a queue by its URL, `sqlite:///file.db` or `postgresql://…`; a context manager that closes its engine.

        Settings: `clock`, `allowed_sources`, `lease_seconds`, `delivery_lease_seconds`, `backoff`,
        `delivery_backoff`, `max_hops`, `delivery_attempts`, `result_bytes_max`, `busy_seconds`, `table_prefix`.
        Opening never changes the schema, never makes a file, and takes no write lock. Raises Misconfigured,
        SchemaMismatch or Unavailable.
        """
        engine = backend.open_engine(url, busy_seconds=Settings(**settings).busy_seconds)
        try:
            queue = cls(engine, **settings)
        except BaseException:
            engine.dispose()
            raise
        queue._owned = True
        return queue

    def session(self) -> Session:
        """The same verbs on one held connection, for a loop in one thread. A context manager."""
        return Session(self.settings, self._transactions.hold())

    def on(self, connection: sa.Connection) -> Bound:
        """The verbs inside the caller's own transaction, each in a SAVEPOINT. Answers hold once the caller commits."""
        return Bound(self.settings, connection)

    def close(self) -> None:
        """Close the engine, if this queue opened it. Every later verb raises Misconfigured."""
        self._transactions.close()
        if self._owned:
            self.engine.dispose()

    def __repr__(self) -> str:
        return f"Queue({backend.of(self.engine).name}, table_prefix={self.settings.table_prefix!r})"


class Session(Closing, Loops):
    """A queue's verbs on one held connection, for one thread."""

    def __init__(self, settings: Settings, held: HeldTransactions) -> None:
        self.settings = settings
        self._runner = self._held = held
        self.quiet = _quiet(held.engine)

    def connection(self) -> sa.Connection:
        """The held connection, for `queue.on(connection)` in a transaction of the caller's own."""
        return self._held.connection()

    def close(self) -> None:
        """Give the connection back."""
        self._held.close()


class Bound(Verbs):
    """A queue's verbs inside the caller's own transaction."""

    def __init__(self, settings: Settings, connection: sa.Connection) -> None:
        self.settings = settings
        savepoints = Savepoints(connection, settings.tables.fence_floor)
        savepoints.check_level()
        self._runner = savepoints


def _quiet(engine: sa.Engine) -> set[object] | None:
    return set() if backend.of(engine).one_writer else None


def _driven(steps: Steps[R], run: Callable[[Work[Any], Kind], Any]) -> R:
    """Run the transactions that a generator asks for, and send it each answer or error."""
    answer: Any = None
    try:
        step = next(steps)
        while True:
            try:
                answer = run(*step)
            except Exception as error:  # noqa: BLE001 - the generator says which ones end it
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        ended: R = end.value
        return ended
