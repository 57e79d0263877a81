"""Ways in which a secret once got out: rows and parameters in logs, rows in causes, passwords in odd parts of a URL."""

from __future__ import annotations

import logging

import pytest
import sqlalchemy as sa

from recovery import Misconfigured, Queue, Receiver, RecoveryError
from tests.hostile.canaries import Canaries, Watch, logged, reprs, shown
from tests.hostile.driving import AUTH, file_place, filled, message, server_place
from tests.hostile.refused_values import SENDER
from tests.hostile.ways import Way

OPEN = {"allowed_sources": {SENDER}, "backoff": 0.0}
SECRETS = {"payload", "key", "result", "reason", "error", "password", "option"}


@pytest.fixture
def server(postgres_server):
    """The same on PostgreSQL alone."""
    with server_place(postgres_server) as made:
        yield made


# SQLAlchemy's logger at DEBUG writes down every row that Core fetched, whatever `hide_parameters` says.


def rows_logged(place):
    """What is let out by the verbs that read, with SQLAlchemy's logger at DEBUG."""
    with Watch(sqlalchemy_engine=logging.DEBUG) as watch, Queue.open(place.url, **OPEN) as queue:
        held = filled(queue, place.canaries)
        queue.task(held.claim.task_id)
        queue.explain(held.claim.task_id)
        queue.replies()
    assert any("SELECT" in heard for heard in watch.texts)
    return SECRETS & place.canaries.in_what(watch.texts)


def test_rows_in_the_log(place):
    """Reading a task, a story and the replies writes none of their texts into a log, at any level."""
    assert set() == rows_logged(place)


# PostgreSQL quotes the row that broke a constraint in DETAIL, and parameters in CONTEXT; psycopg makes both its text.

CONSTRAINTS = [
    "ALTER TABLE tasks ADD CONSTRAINT nix CHECK (state = 'pending' AND deadline < 3e9) NOT VALID",
    "ALTER TABLE receipts ADD CONSTRAINT nix CHECK (payload IS NULL) NOT VALID",
]
FENCES = ["ALTER TABLE journal ADD CONSTRAINT nix CHECK (seq < 0) NOT VALID"]
PARAMETERS = "ALTER ROLE {} SET log_parameter_max_length_on_error = -1"


def quoted(place, statements, name="queue"):
    """What the errors of a database that refuses what it is given let out, by their causes."""
    errors = []
    way = Way(name, place.url, **OPEN)
    held = filled(way.verbs, place.canaries)
    if way.is_bound:
        way.end()
    place.run(*statements)
    way = Way(name, place.url, **OPEN) if way.is_bound else way
    calls = [
        lambda: way.verbs.receive(message(place.canaries), AUTH),
        lambda: way.verbs.finish(held.claim, place.canaries.result),
        lambda: way.verbs.fail(held.other, place.canaries.reason, retryable=False),
        lambda: way.verbs.settle(held.delivery, delivered=False, error=place.canaries.error),
    ]
    for call in calls:
        try:
            call()
        except RecoveryError as error:
            errors.append(error)
    with Receiver.open(place.url) as receiver:
        try:
            receiver.accept("r-1", place.canaries.payload)
        except RecoveryError as error:
            errors.append(error)
    way.end()
    with Watch() as watch:
        for one in errors:
            logged(one)
    assert {"StatementFailed"} == {type(one).__name__ for one in errors}
    assert all(one.__cause__ is not None for one in errors)
    texts = [text for one in errors for text in shown(one)]
    return SECRETS & place.canaries.in_what([*texts, *watch.texts])


def test_a_row_in_the_cause(server):
    """What refuses a row does not quote it: the cause is kept, and its text is the database's first sentence."""
    assert set() == quoted(server, CONSTRAINTS)


def test_a_reason_in_the_cause(server):
    """The same for a row of the journal."""
    assert set() == quoted(server, FENCES)


def test_parameters_in_the_cause(server):
    """The same where the server adds parameters to its errors (log_parameter_max_length_on_error)."""
    server.run(PARAMETERS.format(server.canaries.user))
    assert set() == quoted(server, CONSTRAINTS)


@pytest.mark.parametrize("statements", [CONSTRAINTS, FENCES], ids=["tasks and receipts", "journal"])
@pytest.mark.parametrize("name", ["queue", "session", "on", "async queue", "async on"])
def test_the_cause_through_every_door(server, statements, name):
    """Whichever way the verb was called, and with a server that adds parameters: the cause says its first sentence."""
    server.run(PARAMETERS.format(server.canaries.user))
    assert set() == quoted(server, statements, name)


def test_no_row_in_the_cause_on_sqlite(tmp_path):
    """SQLite names the table and the constraint, and quotes no row."""
    with file_place(tmp_path) as place:
        told = "BEFORE {} ON {} BEGIN SELECT RAISE(ABORT, 'no'); END"
        names = [("INSERT", "tasks"), ("UPDATE", "tasks"), ("UPDATE", "outbox"), ("INSERT", "receipts")]
        triggers = [f"CREATE TRIGGER no_{table}_{when} {told.format(when, table)}" for when, table in names]
        assert set() == quoted(place, triggers)


# aiosqlite writes every call into its log at DEBUG, with the parameters, and its logger follows the root's level.


def logged_by_aiosqlite(tmp_path, level):
    """What is let out in a caller's own transaction on an engine of aiosqlite that went through `prepare_engine`."""
    with file_place(tmp_path) as place, Watch(aiosqlite=level) as watch:
        way = Way("async on", place.url, **OPEN)
        filled(way.verbs, place.canaries)
        way.end()
        return SECRETS & place.canaries.in_what(watch.texts)


def test_parameters_in_the_log_of_aiosqlite(tmp_path):
    """An engine that was prepared logs no payload, with nothing more than the root's logger at DEBUG."""
    assert set() == logged_by_aiosqlite(tmp_path, logging.NOTSET)


# A URL whose user was forgotten: `postgresql://host:password/db` has the password where the port stands.

FORGOTTEN = ("postgresql://host:{password}/db", "postgresql://me@host:{password}/db")


def told_of(form):
    """What the refusal of a URL lets out."""
    canaries = Canaries()
    with pytest.raises(Misconfigured) as caught:
        Queue.open(form.format_map(vars(canaries)))
    return canaries.in_what(shown(caught.value))


@pytest.mark.parametrize("form", FORGOTTEN)
def test_a_password_where_the_port_stands(form):
    """A URL that cannot be read is not repeated, nor any part of it."""
    assert set() == told_of(form)


# A password among the options of a URL, which libpq allows, is no password to SQLAlchemy, and no repr hides it.


def shown_of_options(server):
    """What an engine shows whose URL has its password among the options."""
    url = sa.make_url(server.url)
    url = sa.URL.create(url.drivername, url.username, None, url.host, url.port, url.database, {**url.query})
    url = url.update_query_dict({"password": server.canaries.password})
    with Queue.open(url, **OPEN) as queue:
        assert 0 == queue.counts().received
        return SECRETS & server.canaries.in_what(reprs([queue, queue.engine, queue.engine.url]))


def test_a_password_among_the_options(server):
    """It is hidden as any other password is."""
    assert set() == shown_of_options(server)
