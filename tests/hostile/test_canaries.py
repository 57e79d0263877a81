"""Secrets in payloads, results, reasons and errors are in no log, no error and no `repr`, whatever goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import psycopg
import pytest

from recovery import Busy, CommitUnknown, RecoveryError
from tests.hostile.canaries import Watch, logged, reprs, shown
from tests.hostile.driving import (
    AUTH,
    WRECKS,
    admit_nobody,
    attempts,
    filled,
    message,
    refusals,
)
from tests.hostile.refused_values import SENDER
from tests.hostile.ways import WAYS, Way

OPEN = {"allowed_sources": {SENDER}, "busy_seconds": 0.1, "backoff": 0.0}
LOOPS = [way for way in WAYS if not way.endswith(" on") and way != "on"]
DRIVERS_OWN = {"user"}
"""What may be found: the driver's connection, which SQLAlchemy's pool logs at DEBUG, and the server's own refusals
name the role that they speak of. That is no secret; its password is in none of them."""
NO_LEAKS: tuple[set[str], list[str]] = (set(), [])


@contextlib.contextmanager
def opened(name, place):
    """A way to the verbs, which may be broken by the end."""
    way = Way(name, place.url, **OPEN)
    try:
        yield way
    finally:
        with contextlib.suppress(Exception):
            way.end()


def tried(calls):
    """What every call answered or raised; errors are logged as a program logs them."""
    answers, errors = [], {}
    for name, call in calls.items():
        try:
            answers.append(call())
        except RecoveryError as error:
            logged(error)
            errors[name] = error
    return answers, errors


def leaks(place, watch, answers, errors):
    """The canaries that were let out, and the first lines that hold one."""
    texts = [*watch.texts, *reprs(answers)]
    for error in errors:
        texts += shown(error)
    found = place.canaries.in_what(texts) - DRIVERS_OWN
    return found, place.canaries.lines_with(texts)[:5] if found else []


@pytest.mark.parametrize("name", WAYS)
def test_when_all_is_well(place, name):
    """Every verb, at work and refused: nothing of what it took stands in a log, an error or the repr of its answer.

    SQLAlchemy's log has the statements, at INFO, without their values.
    """
    with Watch() as watch, opened(name, place) as way:
        held = filled(way.verbs, place.canaries)
        _, errors = tried(refusals(way.verbs, held, place.canaries))
        answers, more = tried(attempts(way.verbs, held, place.canaries))
        way.end()
    met = {type(error).__name__ for error in errors.values()}
    assert {"InvalidEnvelope", "Unauthorized", "PayloadCollision", "Fenced"} == met
    assert set(refusals(way.verbs, held, place.canaries)) == set(errors)
    assert {"Task", "Explanation", "Claim", "Delivery", "Ack"} <= {type(answer).__name__ for answer in answers}
    things = [*answers, way.verbs, getattr(way.verbs, "inner", None), held, message(place.canaries)]
    assert NO_LEAKS == leaks(place, watch, things, [*errors.values(), *more.values()])
    assert any("INSERT INTO" in text or "SELECT" in text for text in watch.texts)


@pytest.mark.parametrize("wreck", WRECKS)
@pytest.mark.parametrize("name", LOOPS)
def test_when_the_database_goes_wrong(place, name, wreck):
    """The same for every error that a database has in store: what it says is ours, and its cause shows no row."""
    how, wanted = WRECKS[wreck]
    with Watch() as watch, opened(name, place) as way:
        held = filled(way.verbs, place.canaries)
        with how(place):
            dispose(way, place)
            answers, errors = tried(attempts(way.verbs, held, place.canaries))
    admit_nobody(place, closed=False)
    assert wanted & {type(error).__name__ for error in errors.values()}
    assert NO_LEAKS == leaks(place, watch, answers, errors.values())


def dispose(way, place):
    """Let go of the connections, so that the next verb needs a new one."""
    inner = getattr(way.verbs, "inner", way.verbs)
    if place.is_file and "session" in way.name:
        inner._held._held.invalidate()
    if hasattr(inner, "engine"):
        disposing = inner.engine.dispose()
        if asyncio.iscoroutine(disposing):
            way.verbs.loop.run(disposing)


@pytest.mark.parametrize("name", LOOPS)
def test_when_it_is_closed(place, name):
    """What is closed refuses every verb, and does not tell what it was asked."""
    with Watch() as watch, opened(name, place) as way:
        held = filled(way.verbs, place.canaries)
        inner = getattr(way.verbs, "inner", way.verbs)
        closing = inner.close()
        if asyncio.iscoroutine(closing):
            way.verbs.loop.run(closing)
        answers, errors = tried(attempts(way.verbs, held, place.canaries))
    assert ([], {"Misconfigured", "BatchFailed"}) == (answers, {type(error).__name__ for error in errors.values()})
    assert NO_LEAKS == leaks(place, watch, [inner], errors.values())


def lost(place):
    """The driver's error for a line that broke, or a disk that failed, at COMMIT."""
    if not place.is_file:
        return psycopg.OperationalError("the line broke")
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10
    return error


@pytest.mark.parametrize("name", ["queue", "session"])
def test_when_the_commit_is_in_doubt(place, name):
    """CommitUnknown says nothing of what may be stored or not."""
    with Watch() as watch, opened(name, place) as way:
        held = filled(way.verbs, place.canaries)
        dialect = way.verbs._runner.engine.dialect

        def broken(line):
            raise lost(place)

        dialect.do_commit = broken
        _, errors = tried(attempts(way.verbs, held, place.canaries))
    assert CommitUnknown in {type(error) for error in errors.values()}
    assert NO_LEAKS == leaks(place, watch, [], errors.values())


def test_when_it_can_only_be_read(place):
    """ReadOnly, by the URL of a file or by a setting of the role."""
    with opened("queue", place) as way:
        held = filled(way.verbs, place.canaries)
    if place.is_file:
        place.url += "?mode=ro"
    else:
        place.run(f"ALTER ROLE {place.canaries.user} SET default_transaction_read_only = on")
    with Watch() as watch, opened("queue", place) as way:
        answers, errors = tried(attempts(way.verbs, held, place.canaries))
    assert "ReadOnly" in {type(error).__name__ for error in errors.values()}
    assert NO_LEAKS == leaks(place, watch, answers, errors.values())


def test_when_the_pool_is_empty(place):
    """Busy, where every connection is in use."""
    with Watch() as watch, opened("queue", place) as way, contextlib.ExitStack() as taken:
        for _ in range(15):
            taken.enter_context(way.verbs.engine.connect())
        with pytest.raises(Busy) as caught:
            way.verbs.receive(message(place.canaries), AUTH)
        logged(caught.value)
    assert NO_LEAKS == leaks(place, watch, [], [caught.value])
