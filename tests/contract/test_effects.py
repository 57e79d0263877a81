"""What an effect may do with the receipt's transaction: work in it, and never end it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import StatementFailed
from tests.plugins.queues import AUTH, envelope

REPLY = ("reply:1", '"x"')


def caught(connection: sa.Connection) -> None:
    """Send a statement that the database refuses, and go on as if nothing had happened."""
    with pytest.raises(sa.exc.DBAPIError):
        connection.execute(sa.text("INSERT INTO no_such_table VALUES (1)"))


def caught_in_a_savepoint(connection: sa.Connection, *_: str) -> None:
    """The same, where it harms nothing else."""
    with pytest.raises(sa.exc.DBAPIError), connection.begin_nested():
        connection.execute(sa.text("INSERT INTO no_such_table VALUES (1)"))


def rolled_back_and_begun_again(connection: sa.Connection, *_: str) -> None:
    """Throw the receipt away, and write into a transaction that follows."""
    connection.rollback()
    connection.execute(sa.text("DELETE FROM journal"))


def committed_and_raised(connection: sa.Connection, *_: str) -> None:
    """Make the receipt stand, and then fail."""
    connection.commit()
    raise ZeroDivisionError


def commit_refused_and_caught(connection: sa.Connection, *_: str) -> None:
    """Take no for an answer, and go on."""
    with pytest.raises(StatementFailed):
        connection.commit()


def ended_in_plain_sql(connection: sa.Connection, *_: str) -> None:
    """Roll back behind SQLAlchemy's back."""
    connection.exec_driver_sql("ROLLBACK")


@pytest.mark.parametrize(
    "apply",
    [
        lambda connection, *_: connection.rollback(),
        lambda connection, *_: connection.get_transaction().rollback(),
        lambda connection, *_: connection.close(),
        rolled_back_and_begun_again,
        committed_and_raised,
        commit_refused_and_caught,
        ended_in_plain_sql,
    ],
    ids=["rollback", "of the object", "close", "begun again", "commit and raise", "commit refused", "plain SQL"],
)
def test_an_effect_cannot_end_the_transaction(receiver, stored, apply):
    """It is refused, there is neither receipt nor effect, and the reply is accepted the next time, once."""
    with pytest.raises(StatementFailed, match="ended or broken from inside"):
        receiver.accept(*REPLY, apply)
    assert (False, 0) == (receiver.seen(REPLY[0]), receiver.effect_count())
    assert [False, True] == [receiver.accept(*REPLY).duplicate for _ in range(2)]
    assert [1, 1] == [len(stored.rows(name)) for name in ("receipts", "effects")]


def test_an_error_that_an_effect_caught(receiver):
    """It is confirmed only if it is stored: where the database gave the transaction up, there is an error instead."""
    try:
        confirmed = receiver.accept(*REPLY, lambda connection, *_: caught(connection)).ack == "stored"
    except StatementFailed:
        confirmed = False
    assert confirmed == receiver.seen(REPLY[0])
    assert "stored" == receiver.accept(*REPLY).ack
    assert 1 == receiver.effect_count()


def test_an_error_that_an_effect_caught_in_a_savepoint(receiver):
    """That is the way to do it: the receipt and the rest of the effect are stored."""
    assert not receiver.accept(*REPLY, caught_in_a_savepoint).duplicate
    assert (True, 1) == (receiver.seen(REPLY[0]), receiver.effect_count())


def test_a_reply_is_sent_only_if_it_is_received(queue, receiver, stored):
    """A delivery whose effect rolled back is no delivery: the reply waits to be sent again, and then arrives."""

    class Careless:
        def __init__(self, apply):
            self.apply = apply

        def accept(self, reply_id, payload):
            return receiver.accept(reply_id, payload, self.apply)

    queue.receive(envelope(hops=9), AUTH)
    first = queue.dispatch_once(Careless(lambda connection, *_: connection.rollback()))
    assert ("pending", False) == (first.state, receiver.seen(first.reply_id))
    assert [0] == [len(stored.rows("effects"))]
