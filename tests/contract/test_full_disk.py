"""A SQLite file that may not grow: the same error as a full disk, without one."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import BatchFailed, Queue, Receiver, Unavailable, migrate, open_engine
from tests.plugins.queues import AUTH, SOURCES, envelope

MESSAGES_MAX = 200
PAGES_LEFT = 40
TEXT = "t" * 20_000


class File:
    """A migrated file whose connections, while `is_full`, may not make it more than a few pages longer."""

    def __init__(self, path):
        migrate(f"sqlite:///{path}")
        self.engine = open_engine(f"sqlite:///{path}")
        with self.engine.connect() as connection:
            self._pages_max = connection.exec_driver_sql("PRAGMA page_count").scalar_one() + PAGES_LEFT
        self.is_full = True
        sa.event.listen(self.engine, "checkout", self._limit)

    def _limit(self, driver, record, proxy):
        driver.execute(f"PRAGMA max_page_count = {self._pages_max if self.is_full else 2**30}")


@pytest.fixture
def file(tmp_path):
    """A file that is nearly full."""
    made = File(tmp_path / "recovery.db")
    yield made
    made.engine.dispose()


@pytest.fixture
def queue(file):
    """A queue in it."""
    return Queue(file.engine, allowed_sources=SOURCES, clock=None)


def large(message_id):
    """A message that takes five pages and more."""
    return envelope(message_id, payload={"text": TEXT}, deadline=2.0**40)


def filled(queue):
    """Receive until there is no room, and return what was acknowledged."""
    with pytest.raises(BatchFailed) as caught:
        queue.receive_batch([large(f"m-{number}") for number in range(MESSAGES_MAX)], AUTH)
    assert (Unavailable, True) == (type(caught.value.cause), "disk is full" in str(caught.value.cause))
    return caught.value.acks


def rows(file, name):
    """How many rows a table has."""
    with file.engine.connect() as connection:
        return connection.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one()


def test_receiving(queue, file):
    """What was acknowledged is stored whole, what was refused not at all; with room the same queue goes on."""
    stored = len(filled(queue))
    assert stored
    assert [stored] * 2 == [rows(file, name) for name in ("inbox", "tasks")]
    with pytest.raises(Unavailable):
        queue.receive(large("one more"), AUTH)
    file.is_full = False
    assert not queue.receive(large("one more"), AUTH).duplicate
    assert [stored + 1] * 2 == [rows(file, name) for name in ("inbox", "tasks")]


def test_finishing(queue, file):
    """A finish for which there is no room leaves the claim as it was, and succeeds when there is room."""
    queue.receive(envelope(deadline=2.0**40), AUTH)
    claim = queue.claim("w")
    with pytest.raises(Unavailable):
        queue.finish(claim, TEXT * 40)
    task = queue.task(claim.task_id)
    assert ("running", claim.fence, claim.lease_until, 0) == (
        task.state,
        task.fence,
        task.lease_until,
        rows(file, "outbox"),
    )
    file.is_full = False
    queue.finish(claim, TEXT * 40)
    assert ("done", 1) == (queue.task(claim.task_id).state, rows(file, "outbox"))


def test_accepting(file):
    """A receiver without room stores neither the receipt nor its effect, and accepts the reply later, once."""
    receiver = Receiver(file.engine)
    with pytest.raises(Unavailable):
        receiver.accept("reply:x", TEXT * 40)
    assert [0, 0] == [rows(file, name) for name in ("receipts", "effects")]
    file.is_full = False
    assert [False, True] == [receiver.accept("reply:x", TEXT * 40).duplicate for _ in range(2)]
    assert 1 == receiver.effect_count()


def test_in_the_callers_transaction(queue, file):
    """A verb without room takes the caller's whole transaction with it, and nothing of it is kept behind its back."""
    messages = [large(f"m-{number}") for number in range(MESSAGES_MAX)]
    with file.engine.connect() as connection:
        connection.begin()
        connection.execute(sa.text("UPDATE fence_floor SET floor = 7"))
        with pytest.raises(Unavailable):
            queue.on(connection).receive_all(messages, AUTH)
        with pytest.raises(sa.exc.InvalidRequestError):
            connection.execute(sa.text("UPDATE fence_floor SET floor = 8"))
        with pytest.raises(sa.exc.InvalidRequestError):
            connection.commit()
    with file.engine.connect() as connection:
        assert 0 == connection.execute(sa.text("SELECT floor FROM fence_floor")).scalar_one()
    assert [0, 0] == [rows(file, name) for name in ("inbox", "tasks")]
