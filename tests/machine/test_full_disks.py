"""A disk that fills up under a queue, and has room again: what was acknowledged is there, and nothing else is."""

from __future__ import annotations

import itertools
import random
import sqlite3
import time

import psycopg
import pytest

from recovery import AuthContext, BatchFailed, Envelope, Fenced, Queue, Receiver, Unavailable, migrate
from tests.plugins.queues import SOURCES

AUTH = AuthContext("agent-a")
MESSAGES_MAX = 1000
ROOM_BYTES = 512 * 1024
LEASE_SECONDS = 600.0
DEADLINE = time.time() + 3600


def text(seed, size_bytes):
    """A text that cannot be made shorter by packing it, and is the same for the same seed."""
    return random.Random(seed).randbytes(size_bytes // 2).hex()


def message(number, size_bytes=8000):
    """A message of about this size."""
    return Envelope(f"m-{number}", "agent-a", {"text": text(number, size_bytes)}, DEADLINE)


@pytest.fixture
def sqlite_disk(new_disk):
    """The URL of a migrated file on a small disk, and that disk with a ballast on it."""
    disk = new_disk(4 * 1024)
    url = f"sqlite:///{disk.folder}/recovery.db"
    migrate(url)
    disk.load(disk.free_bytes() - ROOM_BYTES)
    return url, disk


@pytest.fixture
def postgres_disk(tablespace):
    """The URL of a migrated database whose tables lie on a small disk, and that disk with a ballast on it."""
    url, disk = tablespace
    disk.load(disk.free_bytes() - ROOM_BYTES)
    return url, disk


@pytest.fixture(params=["sqlite_disk", "postgres_disk"])
def database(request):
    """A migrated database on a small disk, and that disk."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def url(database):
    """The URL of the database."""
    return database[0]


@pytest.fixture
def disk(database):
    """The disk under it."""
    return database[1]


@pytest.fixture
def queue(url):
    """A queue with long leases, on the database's own clock."""
    with Queue.open(url, allowed_sources=SOURCES, lease_seconds=LEASE_SECONDS) as opened:
        yield opened


def filled(queue, first=0):
    """Receive messages until the disk is full, and return the task ids of those that were acknowledged."""
    with pytest.raises(BatchFailed) as caught:
        queue.receive_batch((message(number) for number in range(first, first + MESSAGES_MAX)), AUTH)
    assert (Unavailable, True) == (type(caught.value.cause), "disk" in str(caught.value.cause))
    return [ack.task_id for ack in caught.value.acks]


def outcome(call, *args):
    """Whether there was room for a call."""
    try:
        call(*args)
    except Unavailable:
        return False
    return True


def rows(url, table, column="task_id"):
    """What a table holds, read by another connection that knows nothing of the library."""
    statement = f"SELECT {column} FROM {table}"
    if url.startswith("sqlite"):
        line = sqlite3.connect(url.removeprefix("sqlite:///"))
        found = line.execute(statement).fetchall()
        line.close()
        return sorted(row[0] for row in found)
    with psycopg.connect(url) as plain:
        return sorted(row[0] for row in plain.execute(statement).fetchall())


def is_whole(url):
    """Whether the file passes SQLite's own check; a PostgreSQL server has none to ask."""
    if not url.startswith("sqlite"):
        return True
    line = sqlite3.connect(url.removeprefix("sqlite:///"))
    found = line.execute("PRAGMA integrity_check").fetchall()
    line.close()
    return [("ok",)] == found


def test_what_was_acknowledged_is_there_and_nothing_else(queue, url, disk):
    """Receiving until the disk is full ends in Unavailable; the inbox and the tasks hold exactly the acknowledged."""
    acknowledged = sorted(filled(queue))
    assert acknowledged
    assert acknowledged == rows(url, "tasks") == rows(url, "inbox")
    assert len(acknowledged) == queue.counts().received
    assert is_whole(url)


def test_it_goes_on_when_there_is_room(queue, url, disk):
    """After room was made the same queue stores the refused message and the next ones, and all are worked on."""
    acknowledged = filled(queue)
    number = len(acknowledged)
    for _ in range(3):
        with pytest.raises(Unavailable):
            queue.receive(message(number), AUTH)
    disk.make_room()
    acks = [queue.receive(message(number + more), AUTH) for more in range(20)]
    assert [False] * 20 == [ack.duplicate for ack in acks]
    assert queue.receive(message(0), AUTH).duplicate
    everything = sorted(acknowledged + [ack.task_id for ack in acks])
    assert everything == rows(url, "tasks") == rows(url, "inbox")
    held = queue.claim_batch("w", 10)
    for claim in held:
        queue.finish(claim, 1)
    assert sorted(claim.task_id for claim in held) == rows(url, "outbox", "task_id")
    assert is_whole(url)


def test_a_claim_outlives_a_full_disk(queue, url, disk):
    """A finish for which there is no room changes nothing: the claim holds, and the same finish succeeds later."""
    queue.receive(message(0), AUTH)
    claim = queue.claim("w")
    filled(queue, first=1)
    for _ in range(3):
        with pytest.raises(Unavailable):
            queue.finish(claim, text(1, 900_000))
    task = queue.task(claim.task_id)
    assert ("running", "w", claim.fence) == (task.state, task.owner, task.fence)
    assert [] == rows(url, "outbox")
    disk.make_room()
    renewed = queue.renew(claim)
    queue.finish(renewed, text(1, 100_000))
    assert "done" == queue.task(claim.task_id).state
    assert [claim.task_id] == rows(url, "outbox")
    with pytest.raises(Fenced):
        queue.finish(renewed, "something else")
    assert is_whole(url)


def test_all_or_nothing(queue, url, disk):
    """`receive_all` that runs out of room in the middle stores none of its messages."""
    with pytest.raises(Unavailable):
        queue.receive_all([message(number, 60_000) for number in range(40)], AUTH)
    assert [] == rows(url, "tasks") == rows(url, "inbox")
    disk.make_room()
    assert not queue.receive_all([message(0), message(1)], AUTH)[1].duplicate


def test_a_receipt_and_its_effect(url, disk):
    """A receiver without room stores neither receipt nor effect, and accepts the same reply later, once."""
    with Receiver.open(url) as receiver:
        outcomes = (outcome(receiver.accept, f"reply:{n}", text(n, 8000)) for n in range(MESSAGES_MAX))
        accepted = len(list(itertools.takewhile(bool, outcomes)))
        assert accepted
        assert accepted == receiver.effect_count() == len(rows(url, "receipts", "reply_id"))
        disk.make_room()
        assert [False, True] == [receiver.accept(f"reply:{accepted}", text(accepted, 8000)).duplicate for _ in range(2)]
        assert accepted + 1 == receiver.effect_count()
