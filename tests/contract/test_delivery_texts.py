"""What is kept of a delivery that went wrong, and what a receiver must be."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from recovery import InvalidEnvelope, Misconfigured, PayloadCollision, Receipt, Unavailable
from tests.plugins.queues import AUTH, envelope

SECRET = "hunter2"


def foreign(module, *names):
    """An error of another driver, made as its module makes it: the last of a line of classes."""
    kind: Any = Exception
    for name in names:
        kind = type(name, (kind,), {"__module__": module})
    return kind(f"Key (email)=({SECRET}) already exists")


WRAPPED = sa.exc.IntegrityError("INSERT", {"email": SECRET}, Exception(SECRET))
FOREIGN = [
    foreign("psycopg2.errors", "UniqueViolation"),
    foreign("pymysql.err", "Error", "DatabaseError", "IntegrityError"),
    foreign("django.db.utils", "Error", "DatabaseError", "IntegrityError"),
    foreign("oracledb.exceptions", "Error", "InterfaceError"),
    foreign("asyncpg.exceptions", "PostgresError", "UniqueViolationError"),
    foreign("apsw", "Error", "ConstraintError"),
    foreign("pymongo.errors", "PyMongoError", "DuplicateKeyError"),
    WRAPPED,
]


def said_from(error):
    """Raised from the database's error, with its words."""
    raise RuntimeError(f"failed: {error}") from error


def said_while(error):
    """Raised while the database's error was handled, with its words."""
    try:
        raise error
    except type(error) as caught:
        raise RuntimeError(f"failed: {caught}")  # noqa: B904 - that is what the receiver forgot


def said_from_none(error):
    """The same, with the connection hidden."""
    try:
        raise error
    except type(error) as caught:
        raise RuntimeError(f"failed: {caught}") from None


def said_twice(error):
    """Two steps away from it."""
    try:
        said_from(error)
    except RuntimeError as caught:
        raise LookupError(str(caught)) from caught


def said_in_a_group(error):
    """In a group of errors, as a task group raises them."""
    raise ExceptionGroup(f"failed: {error}", [ValueError("other"), error])


def said_as_a_refusal(error):
    """As one of our own errors, with the database's words."""
    raise InvalidEnvelope(f"refused: {error}") from error


def said_as_unavailable(error):
    """As our own receiver does: its sentence is ours, its cause the driver's."""
    raise Unavailable from error


class Says:
    """A receiver whose `accept` does what it is told."""

    def __init__(self, *does):
        self._does = does

    def accept(self, reply_id, payload):
        """Raise."""
        does, *rest = self._does
        return does(*rest)


def throw(error):
    """Raise it as it is."""
    raise error


def kept(queue, receiver):
    """The state and text that are kept of one delivery."""
    queue.receive(envelope(hops=9), AUTH)
    queue.dispatch_once(receiver)
    (reply,) = queue.replies()
    return reply.state, reply.last_error


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__module__)
def test_a_database_error_of_any_driver(queue, stored, error):
    """Whatever driver the receiver uses, its error is kept by name only, since its text can carry a row's data."""
    name = type(error).__name__
    assert ("pending", f"{name} from the receiver's database") == kept(queue, Says(throw, error))
    assert SECRET not in str(stored.contents())


@pytest.mark.parametrize(
    ("way", "name"),
    [
        (said_from, "RuntimeError"),
        (said_while, "RuntimeError"),
        (said_from_none, "RuntimeError"),
        (said_twice, "LookupError"),
        (said_in_a_group, "ExceptionGroup"),
    ],
    ids=lambda way: getattr(way, "__name__", ""),
)
def test_an_error_around_a_database_error(queue, stored, way, name):
    """An error that was raised because of a database's error may repeat its text: it is kept by name only, too."""
    assert ("pending", f"{name} from the receiver's database") == kept(queue, Says(way, WRAPPED))
    assert SECRET not in str(stored.contents())


@pytest.mark.parametrize(
    ("way", "state", "text"),
    [
        (said_as_a_refusal, "dead", "What was handed in breaks a rule of the contract; nothing was written."),
        (
            said_as_unavailable,
            "pending",
            "The database cannot be reached, went away before COMMIT was sent, or has no room; nothing was stored.",
        ),
    ],
    ids=lambda way: getattr(way, "__name__", ""),
)
def test_our_own_error_around_a_database_error(queue, stored, way, state, text):
    """One of our own errors around a database's is kept in its class's words, and still decides what happens next."""
    assert (state, text) == kept(queue, Says(way, WRAPPED))
    assert SECRET not in str(stored.contents())


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (RuntimeError("no room"), "pending", "RuntimeError: no room"),
        (InvalidEnvelope("too long."), "dead", "too long."),
        (
            PayloadCollision("reply:1"),
            "dead",
            "reply:1 is already stored with different content; what is stored stays as it was.",
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_receiver_said_itself(queue, error, state, text):
    """What the receiver said of itself is kept as it said it, also where it knew a cause that is no database's."""
    error.__cause__ = ValueError("a cause")
    assert (state, text) == kept(queue, Says(throw, error))


def test_errors_that_cause_each_other(queue):
    """A circle of causes ends the look, not the dispatcher."""
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert ("pending", "RuntimeError: first") == kept(queue, Says(throw, first))


class Later:
    """An awaitable that is no coroutine."""

    def __await__(self):
        yield


async def coroutine():
    """An asynchronous receiver's answer that nobody awaited."""
    return Receipt("stored", "reply:1", duplicate=False)


@pytest.mark.parametrize("answer", [coroutine, Later])
def test_a_plain_accept_that_returns_an_awaitable(queue, answer):
    """A plain `accept` whose work has yet to be awaited is refused aloud at the first reply, at both doors.

    Recorded as an answer, it would use up every reply's attempts without having sent anything.
    """
    queue.receive(envelope(hops=9), AUTH)
    with pytest.raises(Misconfigured, match="awaitable"):
        queue.dispatch_once(Says(answer))
    (reply,) = queue.replies()
    assert ("sending", None) == (reply.state, reply.last_error)


def test_a_receiver_whose_own_setting_is_wrong(queue):
    """A Misconfigured that the receiver raises is an answer like any other error of its own: recorded, temporary."""
    error = Misconfigured("its effect is no function.")
    assert ("pending", "its effect is no function.") == kept(queue, Says(throw, error))
