"""The search finds what it is for: a secret is let out in each way that it knows, and it is seen."""

from __future__ import annotations

import contextlib
import logging
import sys
from types import MappingProxyType

import pytest
import sqlalchemy as sa

from recovery import BatchFailed, Misconfigured, Queue, StatementFailed, Task, Unauthorized, Verdict
from tests.hostile.canaries import Canaries, Watch, command_lines, logged, reprs, shown
from tests.hostile.driving import AUTH, file_place, filled, message
from tests.hostile.refused_values import SENDER

OPEN = {"allowed_sources": {SENDER}, "backoff": 0.0}


@pytest.fixture
def place(tmp_path):
    """A file with secrets."""
    with file_place(tmp_path) as made:
        yield made


@pytest.fixture
def canaries():
    """Secrets that are nowhere yet."""
    return Canaries()


def with_cause(said):
    """An error of ours around a driver's."""
    error = StatementFailed()
    error.__cause__ = ValueError(said)
    return error


def with_context(said):
    """An error that was raised while another was handled, and hides it."""
    try:
        try:
            int(said)
        except ValueError:
            raise Misconfigured from None
    except Misconfigured as error:
        return error


def with_note(said):
    """An error with a note."""
    error = Unauthorized()
    error.add_note(said)
    return error


def with_field(said):
    """An error that keeps what it was given, and would hand it on to another process."""
    error = Unauthorized()
    vars(error)["value"] = said
    return error


def in_a_group(said):
    """An error among others."""
    return ExceptionGroup("two", [Unauthorized(), ValueError(said)])


ERRORS = (
    Unauthorized,
    ValueError,
    with_cause,
    with_context,
    with_note,
    with_field,
    in_a_group,
    lambda said: BatchFailed([], 0, Unauthorized(said)),
)


@pytest.mark.parametrize("made", ERRORS, ids=lambda made: getattr(made, "__name__", "batch"))
def test_an_error_that_tells(canaries, made):
    """Whether it says so itself, in its cause, its context, a note, a field, a group or an item."""
    assert {"payload"} == canaries.in_what(shown(made(canaries.payload)))
    assert set() == canaries.in_what(shown(made("nothing")))


def test_a_log_that_tells(canaries):
    """A message, its arguments, its error, and what was added to it."""
    logger = logging.getLogger("recovery.somewhere")
    with Watch() as watch:
        logger.debug("got %s", canaries.payload)
        logged(with_cause(canaries.reason))
        logging.getLogger("psycopg").debug(canaries.password)
        logger.debug("got it", extra={"result": canaries.result})
    assert {"payload", "reason", "password", "result"} == canaries.in_what(watch.texts)


def test_an_output_that_tells(canaries):
    """Standard output and standard error."""
    with Watch() as watch:
        sys.stdout.write(canaries.payload)
        sys.stderr.write(canaries.error)
    assert {"payload", "error"} == canaries.in_what(watch.texts)


def test_a_repr_that_tells(place, monkeypatch):
    """A record whose `repr` shows all of its fields, and something that holds it."""
    with Queue.open(place.url, **OPEN) as queue:
        held = filled(queue, place.canaries)
        task = queue.task(held.claim.task_id)
    assert set() == place.canaries.in_what(reprs([task, MappingProxyType({"task": task})]))
    monkeypatch.setattr(Task, "__repr__", lambda self: f"Task({self.payload})")
    assert {"key", "payload"} == place.canaries.in_what(reprs([task]))
    assert {"key", "payload"} == place.canaries.in_what(reprs([Verdict("x", None, ValueError(task))]))


@pytest.mark.parametrize("hides", [True, False])
def test_an_engine_that_shows_parameters(place, hides):
    """Without `hide_parameters` the log of statements has the values; ours are made with it."""
    with Watch() as watch, Queue.open(place.url, **OPEN) as queue:
        assert queue.engine.hide_parameters
        queue.engine.hide_parameters = hides
        with contextlib.closing(queue.engine.connect()) as connection:
            connection.execute(sa.text("SELECT 1 WHERE :said = ''"), {"said": place.canaries.payload})
    assert (set() if hides else {"payload"}) == place.canaries.in_what(watch.texts)


def test_a_verb_that_tells(place, monkeypatch):
    """A refusal that repeats what it refused."""
    with Queue.open(place.url, **OPEN) as queue:
        monkeypatch.setattr("recovery.admission.checked_deadline", told)
        with pytest.raises(Misconfigured) as caught:
            queue.receive(message(place.canaries, deadline=place.canaries.payload), AUTH)
    assert {"payload"} == place.canaries.in_what(shown(caught.value))


def told(value):
    """Refuse a deadline, and say which."""
    raise Misconfigured(f"this is no deadline: {value}")


def test_a_process_that_tells(canaries, tmp_path):
    """The arguments of other processes are seen, and those of this one are not looked at."""
    import subprocess

    process = subprocess.Popen([sys.executable, "-c", "input()", canaries.password], stdin=subprocess.PIPE)
    try:
        assert {"password"} == canaries.in_what(command_lines())
    finally:
        process.communicate(b"\n")
    assert set() == canaries.in_what(command_lines())
