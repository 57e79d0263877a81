from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import Fenced, InvalidEnvelope, ManualClock, Misconfigured, PayloadCollision, Queue
from tests.plugins.queues import AUTH, SOURCES, envelope


@pytest.fixture
def plain(database_url, clock):
    """A queue behind the synchronous door."""
    with Queue.open(database_url, allowed_sources=SOURCES, backoff=2.0, clock=clock) as opened:
        yield opened


def test_commit_keeps_all(plain, stored):
    """What the verbs did is durable with the caller's commit."""
    with plain.engine.begin() as connection:
        bound = plain.on(connection)
        ack = bound.receive(envelope(), AUTH)
        bound.finish(bound.claim("w"), 1)
    assert "done" == plain.task(ack.task_id).state
    assert 1 == len(stored.rows("outbox"))


def test_rollback_takes_all_with_it(plain, stored):
    """The caller's rollback leaves nothing of the verbs, nor of the caller's own rows."""
    before = stored.contents()
    with plain.engine.connect() as connection:
        connection.begin()
        connection.execute(sa.text("UPDATE fence_floor SET floor = 7"))
        bound = plain.on(connection)
        bound.receive(envelope(), AUTH)
        bound.claim("w")
        connection.rollback()
    assert before == stored.contents()


def test_savepoint_for_each_verb(plain, stored):
    """A verb that raises takes back itself and nothing else."""
    with plain.engine.begin() as connection:
        bound = plain.on(connection)
        bound.receive(envelope("a"), AUTH)
        with pytest.raises(PayloadCollision):
            bound.receive_all([envelope("b"), envelope("a", hops=1)], AUTH)
        with pytest.raises(InvalidEnvelope):
            bound.receive(envelope(""), AUTH)
        bound.receive(envelope("c"), AUTH)
    assert {"a", "c"} == {row["message_id"] for row in stored.rows("inbox")}


def test_stale_claim_in_the_callers_transaction(plain, clock: ManualClock):
    """A stale claim is Fenced there too, and the caller's transaction lives on."""
    plain.receive(envelope(), AUTH)
    claim = plain.claim("w")
    clock.advance(10)
    with plain.engine.begin() as connection:
        bound = plain.on(connection)
        with pytest.raises(Fenced):
            bound.finish(claim, 1)
        assert 2 == bound.claim("v").fence
    assert 1 == plain.counts().open["running"]


def test_no_transaction_begun(plain):
    """A connection on which no transaction was begun is refused."""
    with plain.engine.connect() as connection, pytest.raises(Misconfigured, match="begin a transaction"):
        plain.on(connection)


def test_transaction_that_ended(plain):
    """A verb after the caller's commit is refused, and does not begin a transaction by itself."""
    with plain.engine.connect() as connection:
        connection.begin()
        bound = plain.on(connection)
        connection.commit()
        with pytest.raises(Misconfigured):
            bound.receive(envelope(), AUTH)
    assert 0 == plain.counts().received


def test_autocommit(plain):
    """A connection at AUTOCOMMIT is refused."""
    with plain.engine.connect() as connection:
        loose = connection.execution_options(isolation_level="AUTOCOMMIT")
        loose.begin()
        with pytest.raises(Misconfigured):
            plain.on(loose)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_another_level(postgres_database, level):
    """Where transactions have levels, every other than READ COMMITTED is refused, before anything is written."""
    with (
        Queue.open(postgres_database, allowed_sources=SOURCES) as queue,
        queue.engine.connect().execution_options(isolation_level=level) as connection,
        connection.begin(),
    ):
        if level == "READ COMMITTED":
            assert queue.on(connection).receive(envelope(), AUTH).duplicate is False
            return
        with pytest.raises(Misconfigured, match="READ COMMITTED"):
            queue.on(connection)


def test_not_a_connection(plain):
    """Anything but a Connection is refused."""
    with pytest.raises(Misconfigured):
        plain.on(plain.engine)


@pytest.mark.parametrize("name", ["receive_batch", "dispatch_once", "reconcile", "open"])
def test_not_offered_there(plain, name):
    """Verbs of several transactions are not offered inside the caller's own."""
    with plain.engine.begin() as connection:
        assert not hasattr(plain.on(connection), name)


def test_session_connection(plain):
    """A session holds one connection, and lends it for the caller's own transaction."""
    with plain.session() as session:
        session.receive(envelope("a"), AUTH)
        connection = session.connection()
        with connection.begin():
            plain.on(connection).receive(envelope("b"), AUTH)
            with pytest.raises(Misconfigured):
                session.receive(envelope("c"), AUTH)
        assert 2 == session.counts().received
