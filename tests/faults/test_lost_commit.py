"""PostgreSQL committed, and the line broke before it could say so."""

from __future__ import annotations

import psycopg
import pytest

from recovery import CommitUnknown
from tests.faults import crashing
from tests.faults.crashing import AUTH, ENVELOPE


@pytest.fixture
def queue(postgres_database):
    """A queue on PostgreSQL."""
    with crashing.open_queue(postgres_database) as queue:
        yield queue


@pytest.fixture
def lose_next(queue):
    """Makes the answer to the next COMMIT get lost; those after it arrive."""
    real = queue.engine.dialect.do_commit

    def arm():
        def do_commit(connection):
            queue.engine.dialect.do_commit = real
            real(connection)
            connection.dbapi_connection.close()
            raise psycopg.OperationalError("the line broke")

        queue.engine.dialect.do_commit = do_commit

    return arm


def test_receive_is_repeated(queue, lose_next):
    """The library asks again by itself, finds the message stored, and answers that it is a duplicate."""
    lose_next()
    ack = queue.receive(ENVELOPE, AUTH)
    assert ("stored", True) == (ack.ack, ack.duplicate)
    assert "pending" == queue.task(ack.task_id).state


def test_claim_is_not_repeated(queue, lose_next):
    """A second claim would take another task: the caller is told of the doubt, and one attempt is spent."""
    ack = queue.receive(ENVELOPE, AUTH)
    lose_next()
    with pytest.raises(CommitUnknown) as caught:
        queue.claim("first")
    assert isinstance(caught.value.__cause__, Exception)
    stored = queue.task(ack.task_id)
    assert ("running", 1) == (stored.state, stored.attempts)


def test_finish_is_repeated(queue, lose_next):
    """The repeat finds its own result under its own fence, and returns quietly with one reply."""
    ack = queue.receive(ENVELOPE, AUTH)
    claim = queue.claim("first")
    lose_next()
    queue.finish(claim, "answer")
    assert ["done"] == [reply.status for reply in queue.replies(ack.task_id)]
