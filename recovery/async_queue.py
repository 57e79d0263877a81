"""The queue, for asyncio: the same verbs from the same bodies."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from recovery import async_transactions as through
from recovery import delivery
from recovery.async_database import AsyncDatabase, Opening
from recovery.closing import AsyncClosing
from recovery.errors import BatchFailed
from recovery.messages import Ack, AuthContext, Dispatched, Envelope, Reconciled
from recovery.overview import Overview
from recovery.reconciling import Steps, reconciling
from recovery.repositories import InboxRepository, OutboxRepository, TaskRepository
from recovery.settings import Settings
from recovery.transactions import READ, REPEATABLE, HeldTransactions, Kind, Work
from recovery.verbs import async_verb

R = TypeVar("R")


class AsyncVerbs:
    """Every verb that is one transaction, for asyncio."""

    settings: Settings
    quiet: set[object] | None = None

    async def run(self, work: Work[R], kind: Kind) -> R:
        raise NotImplementedError

    receive = async_verb(InboxRepository, InboxRepository.receive, REPEATABLE)
    receive_all = async_verb(InboxRepository, InboxRepository.receive_all, REPEATABLE)
    claim = async_verb(TaskRepository, TaskRepository.claim, look=TaskRepository.has_work)
    claim_batch = async_verb(TaskRepository, TaskRepository.claim_batch, look=TaskRepository.has_work_for)
    renew = async_verb(TaskRepository, TaskRepository.renew, REPEATABLE)
    finish = async_verb(TaskRepository, TaskRepository.finish, REPEATABLE)
    finish_batch = async_verb(TaskRepository, TaskRepository.finish_batch, REPEATABLE)
    finish_and_claim = async_verb(TaskRepository, TaskRepository.finish_and_claim)
    fail = async_verb(TaskRepository, TaskRepository.fail)
    release = async_verb(TaskRepository, TaskRepository.release)
    cancel = async_verb(TaskRepository, TaskRepository.cancel)
    task = async_verb(TaskRepository, TaskRepository.task, READ)
    has_open = async_verb(TaskRepository, TaskRepository.has_open, READ)
    claim_reply = async_verb(OutboxRepository, OutboxRepository.claim_reply, look=OutboxRepository.has_work)
    claim_reply_batch = async_verb(
        OutboxRepository, OutboxRepository.claim_reply_batch, look=OutboxRepository.has_work_for
    )
    renew_reply = async_verb(OutboxRepository, OutboxRepository.renew_reply, REPEATABLE)
    settle = async_verb(OutboxRepository, OutboxRepository.settle)
    settle_batch = async_verb(OutboxRepository, OutboxRepository.settle_batch)
    replies = async_verb(OutboxRepository, OutboxRepository.replies, READ)
    explain = async_verb(Overview, Overview.explain, READ)
    counts = async_verb(Overview, Overview.counts, READ)


class AsyncLoops(AsyncVerbs):
    """The verbs that are several transactions, for asyncio."""

    async def receive_batch(
        self, envelopes: Iterable[Envelope] | AsyncIterable[Envelope], auth: AuthContext
    ) -> list[Ack]:
        """Store messages one by one, each committed before the next is looked at; see `Queue.receive_batch`."""
        acks: list[Ack] = []
        try:
            async for envelope in envelopes if isinstance(envelopes, AsyncIterable) else _Stepped(envelopes):
                acks.append(await self.receive(envelope, auth))  # noqa: PERF401 - what was stored must outlive an error
        except Exception as error:
            raise BatchFailed(acks, len(acks), error) from error
        return acks

    async def dispatch_once(self, receiver: Any, owner: str = "dispatcher") -> Dispatched | None:
        """Claim, send and settle one reply; see `Queue.dispatch_once`. A plain receiver is called in a thread."""
        in_loop = delivery.is_async(receiver)
        held = await self.claim_reply(owner)
        if held is None:
            return None
        try:
            if in_loop:
                answer = await receiver.accept(held.reply_id, held.payload)
            else:
                answer = await through.in_a_thread(receiver.accept, held.reply_id, held.payload)
            outcome = delivery.answered(answer, held)
        except Exception as error:  # noqa: BLE001 - a receiver may raise anything, and the reply must outlive it
            outcome = delivery.refused(error)
        state = await self.settle(held, delivered=outcome.delivered, error=outcome.error, permanent=outcome.permanent)
        return Dispatched(held.reply_id, state, outcome.duplicate)

    async def reconcile(self) -> Reconciled:
        """Settle everything that is due, row by row, and name what could not be settled."""
        return await _async_driven(reconciling(self.settings), self.run)


class AsyncQueue(AsyncDatabase, AsyncLoops):
    """Inbox, tasks and outbox in one database, for asyncio. One event loop at a time.

    `AsyncQueue(engine, **settings)` takes a prepared engine, an AsyncEngine on PostgreSQL and a plain one on SQLite,
    which the caller disposes of; it is checked at the first verb.
    """

    @classmethod
    def open(cls, url: str | sa.URL, **settings: Any) -> Opening[Self]:
        """Open a queue by its URL: `async with AsyncQueue.open(url) as queue`, or `await` it and close it yourself.

        Takes what `Queue.open` takes, and raises the same.
        """
        return Opening(lambda: cls._open(url, settings))

    def session(self) -> AsyncSession:
        """The same verbs on one held connection, for one task. An asynchronous context manager."""
        return AsyncSession(self.settings, self.engine, self._transactions.hold(), self._caller)

    def on(self, connection: AsyncConnection) -> AsyncBound:
        """The verbs inside the caller's own transaction, each in a SAVEPOINT. Answers hold once the caller commits."""
        return AsyncBound(self.settings, connection)


class AsyncSession(AsyncClosing, AsyncLoops):
    """A queue's verbs on one held connection, for one task of the loop."""

    def __init__(
        self, settings: Settings, engine: AsyncEngine | sa.Engine, held: HeldTransactions, caller: through.AsyncRunner
    ) -> None:
        self.settings = settings
        self._engine, self._held, self._caller = engine, held, caller
        self.quiet = through.quiet(engine)

    async def run(self, work: Work[R], kind: Kind) -> R:
        return await self._caller.call(self._held.run, work, kind)

    async def connection(self) -> AsyncConnection:
        """The held connection, for `queue.on(connection)`. Raises Misconfigured on SQLite, where it is a thread's."""
        return await self._caller.call(through.async_connection, self._engine, self._held)

    async def close(self) -> None:
        """Give the connection back."""
        await self._caller.call(self._held.close)


class AsyncBound(AsyncVerbs):
    """A queue's verbs inside the caller's own transaction, on an AsyncConnection."""

    def __init__(self, settings: Settings, connection: AsyncConnection) -> None:
        self.settings = settings
        self._savepoints = through.AsyncSavepoints(connection, settings)

    async def run(self, work: Work[R], kind: Kind) -> R:
        return await self._savepoints.run(work, kind)


class _Stepped:
    """A plain iterable, asked the way an asynchronous one is."""

    def __init__(self, iterable: Iterable[Envelope]) -> None:
        self._iterable = iterable

    def __aiter__(self) -> Self:
        self._iterator = iter(self._iterable)
        return self

    async def __anext__(self) -> Envelope:
        try:
            return next(self._iterator)
        except StopIteration:
            raise StopAsyncIteration from None


async def _async_driven(steps: Steps[R], run: Callable[[Work[Any], Kind], Awaitable[Any]]) -> R:
    """The same for asyncio."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await run(*step)
            except Exception as error:  # noqa: BLE001 - the generator says which ones end it
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        ended: R = end.value
        return ended
