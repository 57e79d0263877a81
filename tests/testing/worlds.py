"""A small world with a history: a queue and a receiver that lived through everything, and ways to damage them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from recovery import AuthContext, Claim, Envelope, Fenced, ManualClock, PayloadCollision, Queue, Receiver, migrate
from recovery.testing.checker import Place, Verdict, check
from recovery.testing.history import History, in_folder, read_histories
from recovery.testing.promises import reply_id, sha256, task_id
from recovery.testing.reading import plain
from recovery.testing.recording import RecordedQueue, RecordedReceiver, fingerprint
from tests.plugins.pg_server import PostgresServer

AUTH = AuthContext("agent-a")
ENDS_OF_BATCHES = 100
OWN_EFFECTS = "booked"
LEASE_SECONDS = 10.0


def envelope(name: str, **changes: Any) -> Envelope:
    """A good message of agent-a."""
    return Envelope(name, "agent-a", **{"payload": {"n": 1, "word": "secret"}, "deadline": 2000.0, **changes})


def identity(name: str) -> str:
    """The task of a message."""
    return task_id("agent-a", name)


def run(url: str, *statements: str) -> None:
    """Run statements as they are, past all of recovery."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        connection = sqlite3.connect(parsed.database or "", isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()
        return
    with psycopg.connect(plain(parsed), autocommit=True) as server:
        for statement in statements:
            server.execute(statement)


def loosen(url: str, table: str) -> None:
    """Take every constraint off a table, so that it can hold what must not be."""
    cascade = "" if url.startswith("sqlite") else " CASCADE"
    run(
        url,
        f"CREATE TABLE loose AS SELECT * FROM {table}",
        f"DROP TABLE {table}{cascade}",
        f"ALTER TABLE loose RENAME TO {table}",
    )


class Files:
    """Migrated SQLite files, and copies of them."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders

    def make(self) -> str:
        """The URL of a new one."""
        url = f"sqlite:///{self._folders.mktemp('database')}/recovery.db"
        migrate(url)
        return url

    def copy(self, url: str) -> str:
        """The URL of a copy of a file that nobody has open."""
        file = self._folders.mktemp("database") / "recovery.db"
        shutil.copyfile(sa.make_url(url).database or "", file)
        return f"sqlite:///{file}"


class Databases:
    """The same on a PostgreSQL server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._urls: list[str] = []

    def make(self) -> str:
        """The URL of a new one."""
        return self._made(self._server.template_database("migrated", migrate))

    def copy(self, url: str) -> str:
        """The URL of a copy of a database that nobody is connected to."""
        return self._made(sa.make_url(url).database)

    def _made(self, template: str | None) -> str:
        self._urls.append(self._server.create_database(template))
        return self._urls[-1]

    def drop(self) -> None:
        """Drop all of them."""
        for url in self._urls:
            self._server.drop_database(url)


class World:
    """What was done, by whom, and where it is stored."""

    def __init__(self, queue_url: str, receiver_url: str, folder: Path) -> None:
        self.queue_url, self.receiver_url, self.folder = queue_url, receiver_url, folder
        self.clock = ManualClock(1000.0)

    def live(self) -> None:
        """Do everything once, to the end."""
        run(self.receiver_url, f"CREATE TABLE {OWN_EFFECTS} (reply_id TEXT NOT NULL)")
        settings: dict[str, Any] = {"allowed_sources": {"agent-a"}, "backoff": 1.0, "lease_seconds": LEASE_SECONDS}
        with (
            Queue.open(self.queue_url, clock=self.clock, **settings) as queue,
            Receiver.open(self.receiver_url, clock=self.clock) as receiver,
            self._history("sender") as sent,
            self._history("worker") as worked,
            self._history("dispatcher") as dispatched,
            self._history("receiver") as received,
        ):
            self._send(RecordedQueue(queue, sent))
            self._work(RecordedQueue(queue, worked))
            self._deliver(RecordedQueue(queue, dispatched), RecordedReceiver(receiver, received))

    def _history(self, actor: str) -> History:
        return History(self.folder / f"{actor}.jsonl", actor)

    def _send(self, queue: RecordedQueue) -> None:
        for name in ("done", "failed", "cancelled", "unheard"):
            queue.receive(envelope(name, max_attempts=2), AUTH)
        queue.receive(envelope("done", max_attempts=2), AUTH)
        with pytest.raises(PayloadCollision):
            queue.receive(envelope("done", payload={"n": 2}), AUTH)
        queue.receive(envelope("far", hops=4), AUTH)
        queue.receive(envelope("late", deadline=900.0), AUTH)
        for name in ("stored", "absent"):
            asked = {
                "principal": "agent-a",
                "message_id": name,
                "fingerprint": fingerprint(envelope(name, max_attempts=5)),
            }
            queue.history.invoke("receive", **asked)
        queue.queue.receive(envelope("stored", max_attempts=5), AUTH)

    def _work(self, queue: RecordedQueue) -> None:
        done, failed, cancelled = queue.claim("worker", 3)
        queue.renew(done)
        following = queue.finish_and_claim(done, {"sum": 3})
        assert following is not None
        _finish_unheard(queue, following)
        queue.release(failed)
        queue.cancel(cancelled.task_id)
        self.clock.advance(1.0)
        again, stored = queue.claim("worker") + queue.claim("worker")
        assert [identity("failed"), identity("stored")] == [again.task_id, stored.task_id]
        self.clock.advance(LEASE_SECONDS)
        with pytest.raises(Fenced):
            queue.finish(again, "too late")
        queue.reconcile()
        queue.history.invoke("claim", owner="worker", limit=1)  # The answer never came, and the lease ran out.
        queue.queue.claim("worker")
        self.clock.advance(LEASE_SECONDS)
        queue.fail(queue.claim("worker")[0], "boom", retryable=False)

    def _deliver(self, queue: RecordedQueue, receiver: RecordedReceiver) -> None:
        first = queue.claim_reply("dispatcher")[0]
        queue.renew_reply(first)
        receiver.accept(first.reply_id, first.payload, _book)
        queue.settle(first, delivered=False, error="the ACK was lost")
        self.clock.advance(1.0)
        for held in queue.claim_reply("dispatcher", ENDS_OF_BATCHES):
            receiver.accept(held.reply_id, held.payload, _book)
            queue.settle(held, delivered=True)

    def edit(
        self, actor: str, name: str, change: Callable[[dict[str, Any]], object], event: str = "ok", nth: int = 1
    ) -> None:
        """Change what an actor wrote of the n-th operation of that name that ended so."""
        path = self.folder / f"{actor}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        line = [one for one in lines if one["name"] == name and one["event"] == event][nth - 1]
        change(line["said"])
        path.write_text("".join(json.dumps(one) + "\n" for one in lines))

    def forget(self, actor: str, name: str) -> None:
        """Take every operation of that name out of an actor's history."""
        path = self.folder / f"{actor}.jsonl"
        lines = path.read_text().splitlines()
        path.write_text("".join(line + "\n" for line in lines if json.loads(line)["name"] != name))

    def note(self, name: str, ended: str | None = None, answered: dict[str, Any] | None = None, **asked: Any) -> None:
        """Add an operation of somebody who was not there."""
        with History(self.folder / "stranger.jsonl", "stranger") as history:
            pending = history.invoke(name, **asked)
            if ended is not None:
                history.write(pending, ended, answered or {})

    def queue(self, *statements: str) -> None:
        """Damage the queue's tables."""
        run(self.queue_url, *statements)

    def receiver(self, *statements: str) -> None:
        """Damage the receiver's tables."""
        run(self.receiver_url, *statements)

    def loose_queue(self, *tables: str) -> None:
        """Take the constraints off the queue's tables."""
        for table in tables:
            loosen(self.queue_url, table)

    def loose_receiver(self, *tables: str) -> None:
        """Take the constraints off the receiver's tables."""
        for table in tables:
            loosen(self.receiver_url, table)

    def check(self) -> Verdict:
        """What the checker finds."""
        return check(
            read_histories(in_folder(self.folder)),
            Place(self.queue_url),
            Place(self.receiver_url),
            own_effects=OWN_EFFECTS,
            drained=True,
        )


def _finish_unheard(queue: RecordedQueue, claim: Claim) -> None:
    asked = {"task_id": claim.task_id, "owner": claim.owner, "fence": claim.fence}
    queue.history.invoke("finish", result=sha256('"unheard"'), **asked)
    queue.queue.finish(claim, "unheard")


def _book(connection: sa.Connection, reply: str, payload: str) -> None:
    connection.execute(sa.text(f"INSERT INTO {OWN_EFFECTS} (reply_id) VALUES (:id)"), {"id": reply})


def reply(name: str) -> str:
    """The reply of a message."""
    return reply_id(identity(name))
