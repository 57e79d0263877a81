"""The other doors of contract 2: what opens a queue, what a receiver takes, lines and options of the command."""

from __future__ import annotations

import io
import math
import sys
from functools import partial
from typing import Any

import pytest

from recovery import AsyncQueue, AsyncReceiver, Backoff, InvalidEnvelope, Misconfigured, Queue, Receiver, migrate
from recovery.__main__ import main
from recovery.cli.lines import LINE_BYTES_MAX
from tests.hostile.refused_values import ENVELOPES, SENDER, Row, Sum, int_rows, line, text_rows
from tests.hostile.ways import raised
from tests.model.values import Shout
from tests.plugins.queues import Loop

NOT_SECONDS: list[Any] = [math.nan, math.inf, -math.inf, -0.001, 10**400, 1e300, True, "1", Sum(1), [1.0], 1j]
TIMES = ("lease_seconds", "delivery_lease_seconds", "backoff", "delivery_backoff", "busy_seconds")
WHOLE = {"max_hops": (0, 2**31 - 1), "delivery_attempts": (1, 1000), "result_bytes_max": (1, 64 * 2**20)}
NOT_SOURCES: list[Any] = [
    "agent-a",
    b"agent-a",
    None,
    7,
    {""},
    {"a\0"},
    {7},
    ["a" * 129],
    {Shout("a")},
    iter(["agent-a"]),
]
NOT_PREFIXES: list[Any] = [
    "'; DROP TABLE tasks; --",
    "A",
    "1a",
    "a" * 25,
    "a-",
    "a b",
    "sqlite_",
    "\u00e9",
    "a\n",
    None,
    7,
    Shout("a"),
]
SETTINGS = [
    *[(name, bad) for name in TIMES for bad in NOT_SECONDS],
    *[("lease_seconds", None), ("busy_seconds", None), ("backoff", None), ("lease_seconds", 0), ("busy_seconds", 0)],
    *[(row.field, row.value) for name, bounds in WHOLE.items() for row in int_rows(name, *bounds)],
    *[("allowed_sources", bad) for bad in NOT_SOURCES],
    *[("table_prefix", bad) for bad in NOT_PREFIXES],
    *[("clock", bad) for bad in (1000.0, "now", object())],
]
BACKOFFS: dict[str, list[Any]] = {
    "first_seconds": NOT_SECONDS,
    "factor": [0.5, *NOT_SECONDS],
    "cap_seconds": NOT_SECONDS,
    "jitter": [1, None],
}
NOT_TEXTS: list[Any] = [None, b"{}", {}, 1, Shout("{}")]
REPLIES: list[Row] = [
    *[Row(type(bad).__name__, "payload", bad) for bad in NOT_TEXTS],
    *[Row(rule, "payload", bad) for rule, bad in {"NUL": "a\0", "surrogate": "\ud800", "low": "\udfff"}.items()],
    Row("68 MB", "payload", "x" * (64 * 2**20 + 4097), 64 * 2**20 + 4096),
]
CLEAR_TO_JSON = [(row, text) for row in ENVELOPES if len(text := line(row) or b"") in range(1, LINE_BYTES_MAX)]
OPTIONS = [
    *[(("send", "--as", row.value), "--as") for row in text_rows("as") if type(row.value) is str],
    *[
        (("work", "--handler", "json:dumps", "--once", "--owner", row.value), "owner")
        for row in text_rows("owner")
        if type(row.value) is str
    ],
    *[
        (("work", "--handler", "json:dumps", "--once", "--queue", row.value), "queue")
        for row in text_rows("queue")
        if type(row.value) is str
    ],
    *[
        (("work", "--handler", "json:dumps", "--once", "--lease-seconds", bad), "lease_seconds")
        for bad in ("nan", "inf", "-1", "0", "1e300")
    ],
]


@pytest.mark.parametrize("kind", [Queue, Receiver, AsyncQueue, AsyncReceiver])
def test_settings(tmp_path, kind):
    """Every setting is checked when the queue is made, by its name, before the database is looked for."""
    url, wrong = f"sqlite:///{tmp_path}/missing.db", {}
    loop = Loop()
    for name, bad in SETTINGS:
        opened = partial(kind.open, url, **{name: bad})
        error = raised(partial(awaited, loop, opened) if kind.__name__.startswith("Async") else opened)
        if type(error) is not Misconfigured or name not in str(error):
            wrong[name, repr(bad)[:40]] = repr(error)
    loop.close()
    assert {} == wrong
    assert issubclass(Misconfigured, ValueError)
    assert [] == list(tmp_path.iterdir())


def awaited(loop, opened):
    """What is opened in an event loop."""
    return loop.run(opened())


def test_backoffs():
    """Every number of a backoff is checked when it is made, by its name."""
    wrong = {}
    for name, values in BACKOFFS.items():
        for bad in values:
            error = raised(partial(Backoff, **{"first_seconds": 1.0, name: bad}))
            if type(error) is not Misconfigured or name not in str(error):
                wrong[name, repr(bad)[:40]] = repr(error)
    assert {} == wrong


def test_replies(receiver, stored):
    """A receiver refuses an id that is no text key and a payload that is no JSON text, and stores nothing."""
    before = stored.contents()
    rows = [(row, (row.value, "{}")) for row in text_rows("reply_id")] + [(row, ("r-1", row.value)) for row in REPLIES]
    for row, given in rows:
        error = raised(partial(receiver.accept, *given))
        assert (InvalidEnvelope, row.field) == (type(error), getattr(error, "field", None)), row
        assert row.field in str(error), row
        assert row.limit in {None, getattr(error, "limit", None)}, row
    assert [False] * len(text_rows("id")) == [receiver.seen(row.value) for row in text_rows("id")]
    assert before == stored.contents()


class Command:
    """Runs the command in this process, and says how it ended."""

    def __init__(self, url, monkeypatch, capsys):
        self._url, self._monkeypatch, self._capsys = url, monkeypatch, capsys

    def __call__(self, name, *arguments, stdin=b""):
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._monkeypatch.setattr(sys, "argv", ["recovery", name, "--url", self._url, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *self._capsys.readouterr()


@pytest.fixture
def command(database_url, monkeypatch, capsys):
    """The command on a migrated database."""
    return Command(database_url, monkeypatch, capsys)


def test_lines(command, stored):
    """A line whose field breaks its rule ends `send` with exit 1 and one sentence that names field and limit."""
    assert {"message_id", "kind", "deadline", "max_attempts", "hops", "priority", "queue", "payload"} == {
        row.field for row, _ in CLEAR_TO_JSON
    }
    before, wrong = stored.contents(), {}
    for row, text in CLEAR_TO_JSON:
        code, out, err = command("send", "--as", SENDER, stdin=text + b"\n")
        limit = {None: "", 2**53: "2^53"}.get(row.limit, str(row.limit))
        if (1, "", 1) != (code, out, len(err.splitlines())) or not (row.field in err and limit in err):
            wrong[str(row)] = (code, out, err)
    assert {} == wrong
    assert before == stored.contents()


def test_options(command, stored):
    """An option that breaks its rule is one sentence, exit 2, and no row."""
    before, wrong = stored.contents(), {}
    for arguments, named in OPTIONS:
        code, out, err = command(*arguments)
        if (2, "", 1) != (code, out, len(err.splitlines())) or named not in err:
            wrong[arguments] = (code, out, err)
    assert {} == wrong
    assert before == stored.contents()


def test_an_id_that_is_none(command, stored):
    """`explain` of what can be no id finds nothing, and writes the id so that it cannot move a terminal's cursor."""
    before = stored.contents()
    for row in text_rows("id"):
        if type(row.value) is str:
            code, out, err = command("explain", "--", row.value)
            assert (1, "", 1) == (code, out, len(err.splitlines())), row
            assert "\x1b" not in err, row
    assert before == stored.contents()


def test_a_prefix_is_refused_before_anything_is_made(tmp_path):
    """SQL where a name is wanted makes no file, also for `migrate`."""
    for bad in [bad for bad in NOT_PREFIXES if type(bad) is str]:
        error = raised(partial(migrate, f"sqlite:///{tmp_path}/new.db", table_prefix=bad))
        assert isinstance(error, Misconfigured), (bad, error)
    assert [] == list(tmp_path.iterdir())
