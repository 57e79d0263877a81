"""PgBouncer in transaction mode: every transaction may run on another server connection, and leaves it as it was."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa

from recovery import Fenced, Queue, Receiver, migrate
from recovery.schema import VERSION
from tests.plugins.queues import AUTH, SOURCES, envelope

HOUSE_SETTINGS = {
    "synchronous_commit": "off",
    "lock_timeout": "71s",
    "statement_timeout": "72s",
    "idle_in_transaction_session_timeout": "73s",
    "default_transaction_isolation": "repeatable read",
    "default_transaction_read_only": "off",
}
"""What the database sets for everybody: none is what the library sets for itself, so that a leak is seen."""


@pytest.fixture
def direct_url(postgres_database):
    """The way around PgBouncer."""
    with psycopg.connect(postgres_database, autocommit=True) as line:
        for name, value in HOUSE_SETTINGS.items():
            line.execute(f"ALTER DATABASE \"{line.info.dbname}\" SET {name} = '{value}'")
    return postgres_database


@pytest.fixture
def database_url(direct_url, pgbouncer):
    """The way through PgBouncer, for every fixture that opens something."""
    return pgbouncer.url(direct_url)


def opened(url, **settings):
    """A queue that takes messages from the test's sources."""
    return Queue.open(url, allowed_sources=SOURCES, **settings)


def value(line, statement):
    """The one value that a statement answers."""
    (found,) = line.execute(statement).fetchone()
    return found


def what_next_clients_find(url):
    """What each server connection tells its next client: its number, its settings, and its session's locks."""
    found = {}
    with contextlib.ExitStack() as lines:
        # As many clients as there are server connections, each in a transaction, hold every one of them.
        for line in [lines.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(2)]:
            pid = value(line, "SELECT pg_backend_pid()")
            settings = {name: value(line, f"SHOW {name}") for name in HOUSE_SETTINGS}
            locks = value(line, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            prepared = value(line, "SELECT count(*) FROM pg_prepared_statements")
            found[pid] = (settings, locks, prepared)
    return found


def lived(queue, receiver, clock):
    """One message's whole life, with a worker that was too late, and a delivery that is sent twice."""
    ack = queue.receive(envelope(), AUTH)
    assert queue.receive(envelope(), AUTH).duplicate
    late = queue.claim("w")
    clock.advance(9)
    late = queue.renew(late)
    clock.advance(10)
    with pytest.raises(Fenced):
        queue.finish(late, "late")
    held = queue.claim("v")
    queue.finish(held, {"sum": 5})
    queue.finish(held, {"sum": 5})
    sent = queue.dispatch_once(receiver)
    reply = queue.replies()[0]
    assert ("sent", False, True) == (
        sent.state,
        sent.duplicate,
        receiver.accept(reply.reply_id, reply.payload).duplicate,
    )
    return ack


def test_the_whole_way(queue, receiver, clock):
    """Received, claimed, renewed, refused when late, finished, delivered and accepted once: as without PgBouncer."""
    ack = lived(queue, receiver, clock)
    assert ("done", '{"sum":5}') == (queue.task(ack.task_id).state, queue.task(ack.task_id).result)
    assert 1 == receiver.effect_count()
    assert "nothing: all four stages are over" == queue.explain(ack.task_id).next


def test_nothing_stays_on_a_server_connection(queue, receiver, clock, database_url):
    """After every verb each server connection is as a new one: no setting, session lock or prepared statement stays."""
    lived(queue, receiver, clock)
    queue.receive_all([envelope("a"), envelope("b"), envelope("c", max_attempts=1)], AUTH)
    queue.cancel(queue.claim("w").task_id)
    queue.release(queue.claim("w"))
    queue.fail(queue.claim("w"), "no")
    queue.reconcile()
    queue.counts()
    found = what_next_clients_find(database_url)
    assert 2 == len(found)
    assert [(HOUSE_SETTINGS, 0, 0)] * 2 == list(found.values())


def test_what_would_stay_is_seen(database_url):
    """The look that the test above takes does find a setting and a session lock that somebody left behind."""
    with psycopg.connect(database_url, prepare_threshold=None, autocommit=True) as line:
        line.execute("SET lock_timeout = '1s'")
        line.execute("SELECT pg_advisory_lock(1)")
    found = list(what_next_clients_find(database_url).values())
    assert ["1s", "71s"] == sorted(settings["lock_timeout"] for settings, _, _ in found)
    assert {1} == {locks for _, locks, _ in found}


def test_more_clients_than_server_connections(direct_url, database_url):
    """Eight queues over two server connections claim and finish 80 tasks: each is claimed once, and has one reply."""
    with opened(database_url) as queue:
        messages = [envelope(f"m-{number}", deadline=time.time() + 3600) for number in range(80)]
        wanted = sorted(ack.task_id for ack in queue.receive_batch(messages, AUTH))
    barrier = threading.Barrier(8)

    def work(number):
        with opened(database_url) as queue:
            barrier.wait(timeout=30)
            claimed = []
            while (claim := queue.claim(f"worker-{number}")) is not None:
                queue.finish(queue.renew(claim), number)
                claimed.append(claim.task_id)
            return claimed

    with ThreadPoolExecutor(8) as threads:
        claimed = [task_id for part in threads.map(work, range(8)) for task_id in part]
    assert wanted == sorted(claimed)
    with opened(direct_url) as queue:
        assert (80, 80) == (queue.counts().ended["done"], queue.counts().delivery["pending"])
    with psycopg.connect(direct_url) as line:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND client_port <> -1"
        pids = value(line, f"{others} AND pid <> pg_backend_pid()")
    assert 2 == pids


def test_dispatchers_share_the_deliveries(database_url):
    """Eight dispatchers over two server connections deliver forty replies: each once, none as a duplicate."""
    with opened(database_url) as queue:
        for number in range(40):
            queue.receive(envelope(f"m-{number}", deadline=1.0), AUTH)
    barrier = threading.Barrier(8)

    def deliver(number):
        with opened(database_url) as queue, Receiver.open(database_url) as receiver:
            barrier.wait(timeout=30)
            return list(iter(lambda: queue.dispatch_once(receiver, f"dispatcher-{number}"), None))

    with ThreadPoolExecutor(8) as threads:
        sent = [one for part in threads.map(deliver, range(8)) for one in part]
    assert [("sent", False)] * 40 == [(one.state, one.duplicate) for one in sent]
    with Receiver.open(database_url) as receiver:
        assert 40 == receiver.effect_count()


def test_a_lease_that_ran_out_on_the_servers_clock(database_url):
    """A claim whose lease ran out by the server's clock is refused, also while nobody has taken the task."""
    with opened(database_url, lease_seconds=0.2) as queue:
        ack = queue.receive(envelope(deadline=time.time() + 3600), AUTH)
        claim = queue.claim("w")
        with queue.engine.connect() as connection:
            connection.execute(sa.text("SELECT pg_sleep(0.3)"))
        for refused in (queue.renew, queue.release, lambda late: queue.finish(late, 1)):
            with pytest.raises(Fenced):
                refused(claim)
        assert ("running", claim.fence) == (queue.task(ack.task_id).state, queue.task(ack.task_id).fence)
        again = queue.claim("v")
        assert (ack.task_id, claim.fence + 1) == (again.task_id, again.fence)


def test_in_the_callers_transaction(database_url):
    """Verbs in a caller's transaction live and die with it."""
    with opened(database_url) as queue, queue.engine.connect() as plain:
        connection = plain.execution_options(isolation_level="READ COMMITTED")
        for message_id, end in (("lost", "rollback"), ("kept", "commit")):
            connection.begin()
            queue.on(connection).receive(envelope(message_id, deadline=time.time() + 3600), AUTH)
            getattr(connection, end)()
        assert (1, "w") == (queue.counts().received, queue.claim("w").owner)


@pytest.fixture
def empty_pooled(postgres_server, pgbouncer):
    """The way through PgBouncer to an empty database."""
    url = postgres_server.create_database()
    yield pgbouncer.url(url)
    postgres_server.drop_database(url)


def test_migrate_through_it(empty_pooled):
    """Four processes that migrate at once all end at this release's schema, and leave no lock behind."""
    with multiprocessing.get_context("spawn").Pool(4) as processes:
        assert [VERSION] * 4 == processes.map(migrate, [empty_pooled] * 4)
    assert {0} == {locks for _, locks, _ in what_next_clients_find(empty_pooled).values()}


def test_the_command_through_it(empty_pooled):
    """`recovery migrate` makes the tables through PgBouncer, and `recovery status` reads them."""
    environment = {**os.environ, "RECOVERY_URL": empty_pooled}
    answers = []
    for verb in ("migrate", "status"):
        command = [sys.executable, "-m", "recovery", verb, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert (0, "") == (done.returncode, done.stderr)
        answers.append(json.loads(done.stdout))
    assert (VERSION, 0) == (answers[0]["revision"], answers[1]["received"])
