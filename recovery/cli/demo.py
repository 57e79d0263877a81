"""`recovery demo`: one message's whole story, with real processes, a real SIGKILL and a real database.

Every step is checked against what the contract says, and the first that differs ends the demo with exit 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, Final, Self

import sqlalchemy as sa
import typer

from recovery import (
    Ack,
    AuthContext,
    Claim,
    Envelope,
    Fenced,
    Misconfigured,
    Queue,
    Receipt,
    Receiver,
    RecoveryError,
    SchemaMismatch,
    migrate,
)
from recovery.canonical import reply_id, task_id
from recovery.cli.demo_worker import PREFIX, URL_VARIABLE
from recovery.schema import tables
from recovery.transactions import WRITE

PRINCIPAL: Final = "agent-a"
MESSAGE: Final = "demo-1"
TASK: Final = task_id(PRINCIPAL, MESSAGE)
CHECK_VALUE: Final = "reply:bd09939f3bdb800b2ac17a92671ec9f53bb9a79f3c6ce81f465ea21257f41836"
SHORT_LEASE_SECONDS: Final = 1.0
LEASE_SECONDS: Final = 60.0
DEADLINE_SECONDS: Final = 3600.0
SIGKILLED: Final = -9
NEW: Final = ("pending", 0, 0)
CLAIMED: Final = ("running", 1, 1)
RECLAIMED: Final = ("running", 2, 2)
DONE: Final = ("done", 2, 2)


def demo(
    url: Annotated[
        str | None, typer.Option("--url", help="Database of the queue; without it a temporary SQLite file.")
    ] = None,
    receiver_url: Annotated[
        str | None, typer.Option("--receiver-url", help="Database of the receiver; else a temporary SQLite file.")
    ] = None,
    prepare: Annotated[  # noqa: FBT002 - typer makes a flag of it
        bool, typer.Option("--prepare", help="Only make the demo's own tables (demo_...), and stop.")
    ] = False,
) -> None:
    """Tell a message's whole story with real processes: a kill, a fence, a lost ACK, and one effect."""
    try:
        if prepare:
            _prepare_only(url, receiver_url)
        else:
            _tell(url, receiver_url)
    except _NotAsItMustBe as error:
        print(f"NOT AS IT MUST BE: {error}")
        raise typer.Exit(1) from error
    except RecoveryError as error:
        print(f"recovery demo: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


class _NotAsItMustBe(Exception):
    """A step of the story differs from the contract."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is stored: (state, fence, attempts) of the task and of the reply, the reply's id, and the effects."""

    task: tuple[str, int, int] | None
    reply: tuple[str, int, int] | None
    reply_id: str | None
    effects: int

    def __str__(self) -> str:
        rows = f"{_row('task', self.task)}; {_row('reply', self.reply)}"
        return f"{rows}; reply id {self.reply_id or 'none'}; effect count {self.effects}"


def _row(name: str, row: tuple[str, int, int] | None) -> str:
    return f"no {name}" if row is None else f"{name} {row[0]}, fence {row[1]}, attempts {row[2]}"


def _prepare_only(url: str | None, receiver_url: str | None) -> None:
    if url is None and receiver_url is None:
        raise Misconfigured("--prepare needs --url or --receiver-url; a temporary file needs no preparing.")
    for name, one in (("queue", url), ("receiver", receiver_url)):
        if one is not None:
            migrate(one, table_prefix=PREFIX)
            print(f"prepared: the demo's tables ({PREFIX}...) of the {name} are at this release's schema")


def _tell(url: str | None, receiver_url: str | None) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="recovery-demo-"))  # Mode 0700.
        url = f"sqlite:///{folder}/queue.db" if url is None else url
        receiver_url = f"sqlite:///{folder}/receiver.db" if receiver_url is None else receiver_url
        queue = stack.enter_context(_open_queue(url))
        receiver = stack.enter_context(_open_receiver(receiver_url))
        queue.run(_forget_task, WRITE)
        receiver.run(_forget_reply, WRITE)
        _Story(url, queue, receiver).tell()


def _open_queue(url: str) -> Queue:
    # No delay before the second delivery: the demo is about what happens, not about waiting.
    settings: dict[str, Any] = {"allowed_sources": {PRINCIPAL}, "delivery_backoff": 0.0, "table_prefix": PREFIX}
    try:
        return Queue.open(url, **settings)
    except SchemaMismatch:
        migrate(url, table_prefix=PREFIX)
        return Queue.open(url, **settings)


def _open_receiver(url: str) -> Receiver:
    try:
        return Receiver.open(url, table_prefix=PREFIX)
    except SchemaMismatch:
        migrate(url, table_prefix=PREFIX)
        return Receiver.open(url, table_prefix=PREFIX)


def _forget_task(connection: sa.Connection) -> None:
    """Remove an earlier run's rows from the demo's own tables, and nobody else's."""
    own = tables(PREFIX)
    for table in (own.journal, own.outbox, own.tasks, own.inbox):
        connection.execute(sa.delete(table).where(table.c.task_id == TASK))


def _forget_reply(connection: sa.Connection) -> None:
    own = tables(PREFIX)
    for table in (own.effects, own.receipts):
        connection.execute(sa.delete(table).where(table.c.reply_id == CHECK_VALUE))


class _LosesTheAck:
    """A receiver that stores the reply and whose answer never arrives."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def accept(self, identity: str, payload: str) -> Receipt:
        self._receiver.accept(identity, payload)
        raise ConnectionError("the ACK was lost on the way")


class _Worker:
    """A worker process, killed at the end if it still runs."""

    def __init__(self, url: str, owner: str, lease_seconds: float) -> None:
        command = [sys.executable, "-m", "recovery.cli.demo_worker", owner, str(lease_seconds)]
        self._process = subprocess.Popen(  # noqa: S603 - our own module, and no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, URL_VARIABLE: url},
        )
        self.pid = self._process.pid

    def claimed(self) -> Claim:
        """Wait for the claim that the process made."""
        line = self._line()
        if not line:
            raise _NotAsItMustBe("expected a claim from the worker process, but it ended without one.")
        return Claim(**json.loads(line))

    def killed(self) -> int:
        """Kill it with SIGKILL and return how it ended."""
        self._process.kill()
        return self._process.wait()

    def commit(self) -> tuple[str, int]:
        """Let it commit, and return what it said and how it ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("go on\n")
            self._process.stdin.flush()
        return self._line().strip(), self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class _Story:
    """The eight steps, each checked and printed."""

    def __init__(self, url: str, queue: Queue, receiver: Receiver) -> None:
        self._url, self._queue, self._receiver = url, queue, receiver
        self._envelope = Envelope(MESSAGE, PRINCIPAL, {"numbers": [2, 3]}, time.time() + DEADLINE_SECONDS)
        self._number = 0

    def tell(self) -> None:
        self._message_stored()
        stale = self._worker_killed()
        with self._second_worker() as worker:
            self._stale_commit_refused(stale)
            self._committed(worker)
        self._ack_lost()
        self._sent_again()
        self._message_resent()
        self._end()

    def _message_stored(self) -> None:
        ack: Ack = self._queue.receive(self._envelope, AuthContext(PRINCIPAL))
        _must("the ACK", ack, Ack("stored", TASK, duplicate=False))
        self._step("message demo-1 is stored and acknowledged", _Facts(NEW, None, None, 0))

    def _worker_killed(self) -> Claim:
        with _Worker(self._url, "worker-1", SHORT_LEASE_SECONDS) as worker:
            claim = worker.claimed()
            _must("the first claim's fence", claim.fence, 1)
            _must("the first worker's exit status", worker.killed(), SIGKILLED)
        said = f"worker-1 (process {worker.pid}) claimed it and was killed with SIGKILL"
        self._step(said, _Facts(CLAIMED, None, None, 0))
        return claim

    @contextlib.contextmanager
    def _second_worker(self) -> Iterator[_Worker]:
        with _Worker(self._url, "worker-2", LEASE_SECONDS) as worker:
            claim = worker.claimed()
            _must("the second claim's fence", claim.fence, 2)
            said = f"the lease ran out and worker-2 (process {worker.pid}) claimed it with fence 2"
            self._step(said, _Facts(RECLAIMED, None, None, 0))
            yield worker

    def _stale_commit_refused(self, stale: Claim) -> None:
        answer = "stored"
        try:
            self._queue.finish(stale, {"sum": 5})
        except Fenced:
            answer = "Fenced"
        _must("the answer to the stale commit", answer, "Fenced")
        self._step("worker-1's stale commit with fence 1 is refused (Fenced)", _Facts(RECLAIMED, None, None, 0))

    def _committed(self, worker: _Worker) -> None:
        _must("the second worker's commit", worker.commit(), ("committed", 0))
        task = self._queue.task(TASK)
        _must("the stored result", task and task.result, '{"sum":5}')
        said = 'worker-2 committed the result {"sum":5} and the reply together'
        self._step(said, _Facts(DONE, ("pending", 0, 0), CHECK_VALUE, 0))

    def _ack_lost(self) -> None:
        sent = self._queue.dispatch_once(_LosesTheAck(self._receiver), "dispatcher-1")
        _must("the delivery", sent and (sent.reply_id, sent.state, sent.duplicate), (CHECK_VALUE, "pending", False))
        said = "the reply reached the receiver and its ACK was lost"
        self._step(said, _Facts(DONE, ("pending", 1, 1), CHECK_VALUE, 1))

    def _sent_again(self) -> None:
        sent = self._queue.dispatch_once(self._receiver, "dispatcher-1")
        _must("the delivery", sent and (sent.reply_id, sent.state, sent.duplicate), (CHECK_VALUE, "sent", True))
        said = "the same reply id was sent again and the receiver knew it (duplicate)"
        self._step(said, _Facts(DONE, ("sent", 2, 2), CHECK_VALUE, 1))

    def _message_resent(self) -> None:
        ack: Ack = self._queue.receive(self._envelope, AuthContext(PRINCIPAL))
        _must("the ACK", ack, Ack("stored", TASK, duplicate=True))
        said = "message demo-1 was sent again and is a duplicate"
        self._step(said, _Facts(DONE, ("sent", 2, 2), CHECK_VALUE, 1))

    def _end(self) -> None:
        _must("the reply id that the contract derives", reply_id(TASK), CHECK_VALUE)
        print(f"check value: {CHECK_VALUE} matches the contract's")
        print()
        print(self._queue.explain(TASK))

    def _step(self, said: str, expected: _Facts) -> None:
        self._number += 1
        found = self._facts()
        print(f"{self._number}. {said}: {found}", flush=True)
        _must(f"what is stored after step {self._number}", str(found), str(expected))

    def _facts(self) -> _Facts:
        task = self._queue.task(TASK)
        reply = next(iter(self._queue.replies(TASK)), None)
        return _Facts(
            None if task is None else (task.state, task.fence, task.attempts),
            None if reply is None else (reply.state, reply.fence, reply.attempts),
            None if reply is None else reply.reply_id,
            self._receiver.effect_count(),
        )


def _must(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise _NotAsItMustBe(f"{what}: expected {expected}, found {found}.")
