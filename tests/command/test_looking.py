import os

import pytest

from recovery import migrate
from tests.plugins.commands import line, with_password


def test_status_shows_four_facts(command):
    """Each fact has its states in numbers, as text and as JSON, and nothing adds them up."""
    command.send(line("a"), line("b"), line("c", deadline=1))
    assert {
        "received": 3,
        "open": {"pending": 2, "running": 0},
        "ended": {"done": 0, "failed": 0, "cancelled": 0, "expired": 1, "hop_limit": 0},
        "delivery": {"pending": 1, "sending": 0, "sent": 0, "dead": 0},
    } == command.run("status", "--json").json_lines()[0]
    lines = [text.split() for text in command.run("status").out.splitlines() if text]
    assert [["fact", "state", "rows"], ["received", "3"], ["open", "pending", "2"], ["running", "0"]] == lines[:4]


def test_explain_takes_a_task_or_its_reply(command):
    """Both ids tell the same story; an unknown one is a sentence and exit 1."""
    (task,) = command.send(line("ü"))
    assert "message 'ü'" in command.run("explain", task).out
    story = command.run("explain", f"reply:{task}", "--json", PYTHONIOENCODING="ascii").json_lines()[0]
    assert (task, "ü") == (story["task_id"], story["task"]["message_id"])
    assert {"as_of", "received", "work", "ending", "delivery", "next", "reply", "timeline"} < story.keys()
    unknown = command.run("explain", "x")
    assert (1, "", 1) == (unknown.code, unknown.out, len(unknown.err.splitlines()))


def test_nobody_reads_it(command):
    """Where the reader went away, there is no traceback."""
    (task,) = command.send(line("a"))
    for arguments in (("status",), ("explain", task), ("migrate", "--sql")):
        read, write = os.pipe()
        os.close(read)
        ran = command.run(*arguments, stdout=write)
        os.close(write)
        assert (1, "") == (ran.code, ran.err)


def test_tables_with_a_prefix(command, receiver_url):
    """Every command finds the tables of its prefix, and nothing of the others'."""
    migrate(command.url, table_prefix="x_")
    migrate(receiver_url, table_prefix="y_")
    prefix = ("--table-prefix", "x_")
    assert "x_inbox" in command.run("migrate", "--sql", *prefix).out
    (ack,) = command.run("send", "--as", "agent-a", *prefix, stdin=line("a")).json_lines()
    assert "done" == command.work("asynchronous", *prefix).out.split()[0]
    sent = command.run("deliver", "--to", receiver_url, "--to-prefix", "y_", "--drain", *prefix)
    assert (0, "sent") == (sent.code, sent.out.split()[0])
    assert 1 == command.run("status", "--json", *prefix).json_lines()[0]["delivery"]["sent"]
    assert 0 == command.run("explain", ack["task_id"], *prefix).code
    assert 0 == command.counts().received


@pytest.mark.parametrize("prefix", ["absent_", "no; good"])
def test_a_wrong_prefix(command, prefix):
    """Tables that are not there, and a prefix that cannot be, are one sentence and exit 2."""
    ran = command.run("status", "--table-prefix", prefix)
    assert (2, "", 1) == (ran.code, ran.out, len(ran.err.splitlines()))


def test_a_password_is_never_shown(command):
    """A URL that does not open is refused without being repeated."""
    url = with_password(command.url, "c4n4ry")
    for arguments in (("status",), ("deliver", "--to", url, "--once")):
        ran = command.run(*arguments, RECOVERY_URL=url if arguments == ("status",) else command.url)
        assert (2, "") == (ran.code, ran.out)
        assert ("c4n4ry" in ran.err, "Traceback" in ran.err) == (False, False)
