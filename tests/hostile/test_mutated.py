"""Thousands of spoilt envelopes and lines: refused by a name, or accepted as the contract says, the same on both."""

from __future__ import annotations

import contextlib
import json
import random
import traceback
from collections import Counter

import pytest

import recovery
from recovery import AuthContext, InvalidEnvelope, PayloadCollision, Queue, Unauthorized, migrate
from recovery.cli import lines
from tests.hostile.mutating import CANARY, SENDER, good, line, spoilt
from tests.model import accepted
from tests.model.things import Failure, Refused, Thing

SOURCES = frozenset({SENDER})
AUTH = AuthContext(SENDER)
REFUSALS = (InvalidEnvelope, Unauthorized, PayloadCollision)
SEED = 20261130
KEPT = ("task_id", "principal", "message_id", "fingerprint")


@pytest.fixture
def both(tmp_path, postgres_server):
    """A session of a queue on each backend, and its engine."""
    urls = [f"sqlite:///{tmp_path}/queue.db", postgres_server.create_database()]
    with contextlib.ExitStack() as at_the_end:
        found = []
        for url in urls:
            migrate(url)
            queue = at_the_end.enter_context(Queue.open(url, allowed_sources=SOURCES))
            found.append((at_the_end.enter_context(queue.session()), queue.engine))
        yield found
    postgres_server.drop_database(urls[1])


def stored(engine):
    """What stands in the inbox and, by the same ids, in the tasks."""
    with engine.connect() as connection:
        inbox = connection.exec_driver_sql(f"SELECT {', '.join(KEPT)} FROM inbox ORDER BY task_id").fetchall()
        tasks = connection.exec_driver_sql("SELECT task_id FROM tasks ORDER BY task_id").scalars().all()
    assert [row[0] for row in inbox] == list(tasks)
    return {row[0]: tuple(row[1:]) for row in inbox}


def expected(envelope):
    """What the contract says of an envelope: the message, or the refusal."""
    try:
        return accepted.accept(envelope, Thing("AuthContext", {"principal": SENDER}), SOURCES)
    except Refused as refusal:
        return refusal


def real(envelope):
    """The library's own envelope, or a subclass of it."""
    kind = recovery.Envelope
    made = kind if envelope.kind == "Envelope" else type("Special", (kind,), {})
    return made(**envelope.fields)


def answer(session, envelope):
    """The acknowledged task id, or the refusal, which shows nothing of what was refused."""
    try:
        return session.receive(envelope, AUTH).task_id
    except REFUSALS as error:
        refusal = error
    assert CANARY not in shown(refusal)
    return Failure(type(refusal).__name__, getattr(refusal, "field", ""))


def shown(error):
    """Whatever an error shows of itself."""
    return "".join(traceback.format_exception_only(error)) + repr(error) + str(error.__cause__ or "")


def test_spoilt_envelopes(both, inputs):
    """Every answer is the contract's, the same on both; what was refused left no row, what was accepted is kept."""
    hand = random.Random(SEED)
    kept: dict[str, tuple[str, ...]] = {}
    met: Counter[str] = Counter()
    for number in range(inputs):
        envelope = spoilt(hand, number)
        says, given = expected(envelope), real(envelope)
        answers = [answer(session, given) for session, _ in both]
        assert answers[0] == answers[1], number
        if isinstance(says, Refused):
            assert says == answers[0], (number, says, answers[0])
        elif kept.setdefault(says.task_id, says_kept(says)) == says_kept(says):
            assert says.task_id == answers[0], number
        else:
            assert Failure("PayloadCollision") == answers[0], number
        met["accepted" if isinstance(answers[0], str) else answers[0].name + ":" + answers[0].field] += 1
    for _, engine in both:
        assert set() == set(kept.items()) ^ set(stored(engine).items())
    assert {"accepted", "Unauthorized:", *(f"InvalidEnvelope:{name}" for name in good(0) if name != "sender")} <= set(
        met
    )


def says_kept(message):
    """The columns of the inbox that a message becomes."""
    return (message.principal, message.message_id, message.fingerprint)


def test_spoilt_lines(both, inputs):
    """A line is an envelope or refused by a name, and its text means to us what it means to any reader of JSON."""
    hand = random.Random(SEED + 1)
    kept: dict[str, bytes] = {}
    for number in range(inputs):
        given = line(hand, number)
        answers = [sent(session, given) for session, _ in both]
        assert answers[0] == answers[1], given
        if isinstance(answers[0], str):
            first = kept.setdefault(answers[0], given)
            assert json.loads(first)["payload"] == json.loads(given)["payload"]
    assert 0 < len(kept) < inputs
    for _, engine in both:
        assert set(kept) == set(stored(engine))


def sent(session, given):
    """As the command reads and stores one line."""
    try:
        return session.receive(lines.envelope(given, SENDER), AUTH).task_id
    except REFUSALS as error:
        refusal = error
    assert CANARY not in shown(refusal)
    return Failure(type(refusal).__name__, getattr(refusal, "field", ""))
