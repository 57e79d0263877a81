"""SQL, and what drivers and formatters read as a place for a value, in every string that a caller may give."""

from __future__ import annotations

import io
import json
import sys

import pytest
import sqlalchemy as sa

from recovery import AuthContext, Queue, Receipt, Settlement
from recovery.__main__ import main
from recovery.canonical import canonical_json, task_id
from recovery.migrate import migration_sql
from recovery.schema import tables
from tests.hostile.refused_values import FAR, good
from tests.plugins.queues import AUTH

TEXTS = [
    "'",
    '"',
    "''",
    "`",
    "--",
    "/* */",
    ";",
    "'; DROP TABLE tasks; --",
    '"; DROP TABLE inbox; --',
    "x' OR '1'='1",
    "\\'; DELETE FROM outbox; --",
    "$$; DROP TABLE journal; $$",
    "E'\\x27'",
    "U&'\\0027'",
    "\\x27\\047\\u0027",
    "\\",
    "\\\\",
    "\\n\\r\\0\\b",
    "%",
    "%%",
    "%s",
    "%(p_now)s",
    "%(x)s %d %b %t",
    ":p_now",
    ":name ::text :1",
    "?",
    "? ?1 ?? @p $p",
    "$1",
    "$1 $2 ${HOME}",
    "{}",
    "{0} {p_now} {{}}",
    "#{1+1}",
    "NULL",
    "CURRENT_TIMESTAMP",
    "[1:2]",
    "{a,b}",
    '{"a","b"}',
    "{NULL}",
    "[POSTCOMPILE_p]",
    "__[POSTCOMPILE_x]",
    "LIKE '%_%' ESCAPE '\\'",
    "0x27",
    "\u02bc\uff07\u2019",
    "pg_sleep(1)",
]
"""Each is a text key. The braces are what PostgreSQL reads as an array, and the last but one quotes that are none."""


@pytest.fixture
def opened(door, database_url, clock):
    """A queue at each door that allows every one of the texts as a source."""
    return door.queue(database_url, allowed_sources={*TEXTS, "agent-a"}, backoff=0.0, clock=clock)


@pytest.fixture
def catalog(stored):
    """What tables, columns and indexes there are."""

    def look():
        found = sa.inspect(stored.engine)
        return {
            name: (
                [str(column) for column in found.get_columns(name)],
                [one["name"] for one in found.get_indexes(name)],
            )
            for name in sorted(found.get_table_names())
        }

    return look


@pytest.fixture
def bystander(opened, stored):
    """A task that nobody else has to do with; its rows, cell by cell."""
    ack = opened.receive(good("bystander", queue="elsewhere"), AUTH)

    def rows():
        found = stored.contents()
        return [row for name in ("inbox", "tasks", "journal") for row in found[name] if row["task_id"] == ack.task_id]

    return rows


def sent(text):
    """An envelope with this text wherever an envelope has one."""
    payload = {text: text, "in": [text, {text: [text]}]}
    return good(text, sender=text, payload=payload, queue=text)


def test_a_whole_life(opened, receiver, bystander, catalog, stored):
    """Texts go in by every verb and come back unchanged by every verb that shows them; nothing else changes."""
    before, shape, floor = bystander(), catalog(), stored.rows("fence_floor")
    for text in TEXTS:
        identity = task_id(text, text)
        assert identity == opened.receive(sent(text), AuthContext(text)).task_id
        assert opened.has_open((text,))
        opened.fail(opened.claim(text, (text,)), text)
        assert text == opened.task(identity).last_error
        claim = opened.renew(opened.claim(text, ("nothing", text)))
        assert (text, sent(text).payload) == (claim.owner, claim.payload)
        opened.finish(claim, {text: [text]})
        delivered(opened, receiver, text)
        shown(opened, text, identity)
    assert (before, shape, floor) == (bystander(), catalog(), stored.rows("fence_floor"))
    counts = {name: len(rows) for name, rows in stored.contents().items()}
    number = len(TEXTS)
    wanted = {"inbox": number + 1, "tasks": number + 1, "outbox": number, "receipts": 2 * number, "effects": 2 * number}
    assert wanted == {name: counts[name] for name in wanted}


def delivered(queue, receiver, text):
    """The reply is sent: first with an error that is this text, then stored, also under an id that is this text."""
    held = queue.renew_reply(queue.claim_reply(text))
    assert text == held.owner
    assert "pending" == queue.settle(held, delivered=False, error=text)
    (reply,) = [one for one in queue.replies() if one.state == "pending"]
    assert (text, text) == (reply.last_error, reply.last_owner)
    held = queue.claim_reply(text)
    assert Receipt("stored", held.reply_id, duplicate=False) == receiver.accept(held.reply_id, held.payload)
    assert Receipt("stored", text, duplicate=False) == receiver.accept(text, text)
    assert (True, False) == (receiver.seen(text), receiver.seen(text + "x"))
    assert "sent" == queue.settle(held, delivered=True)


def shown(queue, text, identity):
    """Everything that tells of a task has the text as it was given."""
    story, task = queue.explain(identity), queue.task(identity)
    (reply,) = queue.replies(identity)
    assert (task, reply) == (story.task, story.reply)
    assert (text, text, text, text, text) == (
        *(task.principal, task.message_id, task.queue, task.last_owner, task.last_error),
    )
    assert (sent(text).payload, {text: [text]}) == (json.loads(task.payload), json.loads(task.result))
    assert canonical_json(sent(text).payload) == task.payload
    assert {text: [text]} == json.loads(reply.payload)["result"]
    assert {None, text} == {step.owner for step in story.timeline}
    assert 2 == sum(step.why == text for step in story.timeline)
    words = str(story)
    assert repr(text) in words
    assert text in words


def test_ids_that_are_asked_for(opened, bystander, catalog):
    """A text where an id is asked for finds nothing, and touches nothing."""
    before = bystander(), catalog()
    for text in TEXTS:
        assert (None, None, False, []) == (
            *(opened.task(text), opened.explain(text), opened.cancel(text), opened.replies(text)),
        )
        assert (None, [], False) == (
            *(opened.claim("w", (text,)), opened.claim_batch("w", 1, (text,)), opened.has_open((text,))),
        )
    assert before == (bystander(), catalog())


def test_all_at_once(opened, stored):
    """The same texts side by side in one batch, where one statement takes them as arrays."""
    envelopes = [good(text, payload={text: text}, queue="many") for text in TEXTS]
    opened.receive_all(envelopes, AUTH)
    claims = opened.claim_batch("w'; --", len(TEXTS), ("many",))
    assert [{text: text} for text in TEXTS] == [claim.payload for claim in claims]
    assert all(verdict.ok for verdict in opened.finish_batch([(c, t) for c, t in zip(claims, TEXTS, strict=True)]))
    held = opened.claim_reply_batch("d", len(TEXTS))
    assert TEXTS == [json.loads(one.payload)["result"] for one in held]
    said = [Settlement(one, delivered=False, error=text, permanent=True) for one, text in zip(held, TEXTS, strict=True)]
    assert {"dead"} == {verdict.state for verdict in opened.settle_batch(said)}
    assert TEXTS == [reply.last_error for reply in opened.replies()]
    assert TEXTS == [row["why"] for row in stored.rows("journal") if row["to_state"] == "dead"]


class Says:
    """A receiver that raises a text."""

    def __init__(self, text):
        self._text = text

    def accept(self, reply_id, payload):
        """Raise it."""
        raise RuntimeError(self._text)


def test_what_a_receiver_and_a_reason_say(opened):
    """A text that a receiver raises is kept, and one that a task fails with for good is its reason and its reply."""
    for text in TEXTS:
        ack = opened.receive(good(text), AUTH)
        opened.fail(opened.claim("w"), text, retryable=False)
        assert "pending" == opened.dispatch_once(Says(text), text).state
        (reply,) = opened.replies(ack.task_id)
        task = opened.task(ack.task_id)
        assert (f"RuntimeError: {text}", text, text) == (reply.last_error, reply.last_owner, task.reason)
        assert text == json.loads(reply.payload)["result"]
        opened.settle(opened.claim_reply("d"), delivered=False, permanent=True)
        assert f"it failed: {text}" == opened.explain(ack.task_id).ending


@pytest.fixture
def command(database_url, monkeypatch, capsys):
    """Runs the command in this process, and returns what it printed."""

    def run(name, *arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        monkeypatch.setattr(sys, "argv", ["recovery", name, "--url", database_url, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def test_the_command(command, database_url):
    """The same through `send`, `work` and `explain`: the JSON that is printed has the texts as they were given."""
    for text in TEXTS:
        given = json.dumps({"message_id": text, "deadline": FAR, "payload": {text: text}, "queue": text})
        code, out, err = command("send", f"--as={text}", stdin=given)
        assert (0, "") == (code, err), text
        identity = json.loads(out)["task_id"]
        work = ("work", "--handler", "json:dumps", "--once", f"--owner={text}", f"--queue={text}", "--json")
        code, out, err = command(*work)
        assert (0, "", "done") == (code, err, json.loads(out)["state"]), text
        code, out, err = command("explain", identity, "--json")
        task = json.loads(out)["task"]
        assert (text, text, text, text) == (
            *(task["principal"], task["message_id"], task["queue"], task["last_owner"]),
        )
        assert ({text: text}, json.dumps({text: text})) == (json.loads(task["payload"]), json.loads(task["result"]))
        assert (1, "") == command("explain", "--", text)[:2]
    with Queue.open(database_url) as queue:
        assert len(TEXTS) == queue.counts().ended["done"]


def test_names_of_tables_are_never_made_of_them(catalog):
    """The one text that becomes part of a statement, the prefix of the tables, takes none of these."""
    before = catalog()
    for text in TEXTS:
        with pytest.raises(ValueError, match="table_prefix"):
            tables(text)
        with pytest.raises(ValueError, match="table_prefix"):
            migration_sql("sqlite:///x.db", table_prefix=text)
    assert before == catalog()


def test_a_text_that_became_a_statement_is_seen(opened, stored, catalog, bystander):
    """Planted: what a careless statement would do with one of the texts changes what is looked at here."""
    shape, before = catalog(), bystander()
    with stored.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE tasks SET last_error = 'x' WHERE queue = 'x' OR '1'='1'")
        connection.exec_driver_sql("DROP TABLE effects")
    assert shape != catalog()
    with stored.engine.begin() as connection:
        rows = connection.exec_driver_sql("SELECT last_error FROM tasks").scalars().all()
    assert ["x"] == rows
    assert before[1]["last_error"] is None
