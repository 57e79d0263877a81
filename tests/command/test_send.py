import io
import json
import os
import re
import signal
from pathlib import Path

import pytest

from recovery import AuthContext, open_engine
from recovery.admission import admit
from recovery.cli.lines import envelope, numbered
from recovery.settings import Settings
from tests.plugins.commands import line

CANARY = "c4n4ry"
SEND = ("send", "--as", "agent-a")

REFUSED = {
    "a list": ("[]", "one JSON object"),
    "half an object": ('{"message_id": "' + CANARY, "not JSON, from character 23"),
    "a key twice": (
        '{"message_id":"b","message_id":"c","deadline":1,"payload":{}}',
        "the key 'message_id' stands twice",
    ),
    "a secret key twice": (
        '{"message_id":"b","deadline":1,"payload":{"' + CANARY + '":1,"' + CANARY + '":2}}',
        "a key stands twice",
    ),
    "an unknown key": (line("b", **{CANARY: 1}), "no other keys than message_id, deadline, payload"),
    "a key less": ('{"message_id":"b","payload":{}}', "the key 'deadline' is missing"),
    "NaN": ('{"message_id":"b","deadline":NaN,"payload":{}}', "NaN is not JSON"),
    "minus infinity": ('{"message_id":"b","deadline":4e9,"payload":{"x":-Infinity}}', "-Infinity is not JSON"),
    "a number without end": ('{"message_id":"b","deadline":1e999,"payload":{}}', "deadline must be finite"),
    "a number of many digits": ('{"message_id":"b","deadline":' + "9" * 5000 + ',"payload":{}}', "not finite"),
    "another's name": (line("b", sender=CANARY), "sender is not the principal"),
    "the same id, other content": (line("a", payload={CANARY: 2}), "already stored with different content"),
    "too deep": (line("b", payload={"x": json.loads("[" * 17 + "]" * 17)}), "at most 16 deep"),
    "far too deep": ('{"message_id":"b","payload":' + "[" * 200_000, "nested too deeply"),
    "too large": (line("b", payload={"x": CANARY * 12_000}), "at most 65536 bytes"),
    "far too large": (line("b", payload={"x": CANARY * 200_000}), "a line must be at most 1048576 bytes"),
    "half a character": (line("b", payload={"x": "\ud800"}), "no lone surrogate"),
    "a NUL in the id": (line("b\0"), "message_id must hold no control character"),
    "a mark inside": ("\ufeff" + line("b"), "not JSON, from character 1"),
    "a result": (line("b", kind="result"), "kind must be 'task'"),
}

IN_PROCESSES = ("half an object", "a secret key twice", "another's name", "the same id, other content", "too large")


def test_a_good_file(command):
    """Each line has its ACK, in order: blank ones, CRLF, a byte order mark and a last line without its end are read."""
    data = b"\xef\xbb\xbf" + f"{line('a')}\r\n\n   \n{line('ü')}\n{line('a')}".encode()
    (command.folder / "in.jsonl").write_bytes(data)
    from_file = command.run(*SEND, "in.jsonl")
    assert (0, "") == (from_file.code, from_file.err)
    acks = from_file.json_lines()
    assert [{"ack", "task_id", "duplicate"}] * 3 == [set(ack) for ack in acks]
    assert [("stored", False), ("stored", False), ("stored", True)] == [(ack["ack"], ack["duplicate"]) for ack in acks]
    from_stdin = command.run(*SEND, "-", "--json", stdin=data)
    assert [True, True, True] == [ack["duplicate"] for ack in from_stdin.json_lines()]
    assert 2 == command.counts().received
    assert (0, "", "") == tuple(vars(command.run(*SEND, stdin="")).values())


@pytest.mark.parametrize("case", IN_PROCESSES)
def test_the_first_refused_line_stops_it(command, case):
    """Line 3 is refused by its number and the reason alone, line 1 stays, line 4 is not read."""
    bad, why = REFUSED[case]
    ran = command.run(*SEND, stdin=f"{line('a')}\n\n{bad}\n{line('z')}\n")
    assert (1, 1, 1) == (ran.code, len(ran.out.splitlines()), len(ran.err.splitlines()))
    assert ran.err.startswith("line 3: ")
    assert why in ran.err
    assert CANARY not in ran.err
    assert 1 == command.counts().received


@pytest.mark.parametrize("case", [case for case in REFUSED if case not in IN_PROCESSES])
def test_the_reason_is_told_and_nothing_else(case):
    """Every other refusal by the line itself names the rule, and repeats neither a value nor a key."""
    bad, why = REFUSED[case]
    settings = Settings(allowed_sources={"agent-a"})
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        [admit(envelope(text, "agent-a"), AuthContext("agent-a"), settings) for _, text in numbered(whole(bad))]
    assert CANARY not in str(refused.value)


def whole(text):
    """A file of a blank line and another."""
    return io.BytesIO(b"\n" + text.encode())


def test_bytes_that_are_not_utf8(command):
    """They are refused at their place, without being repeated."""
    ran = command.run(*SEND, stdin=line("a").encode() + b'\n{"c4n4ry\xff\n')
    assert (1, 1) == (ran.code, len(ran.out.splitlines()))
    assert ran.err.startswith("line 2: the line is not UTF-8, from byte 9 on.")
    assert CANARY not in ran.err


def test_each_line_is_acknowledged_at_once(command):
    """A sender that goes on talking has its ACK before the next line, and the message is stored by then."""
    process = command.start(*SEND)
    process.stdin.write(line("a").encode() + b"\n")
    process.stdin.flush()
    assert "stored" == json.loads(process.stdout.readline())["ack"]
    assert 1 == command.counts().received
    assert 0 == command.end(process).code


def test_interrupted_between_two_lines(command):
    """Ctrl-C ends it with 130 and no traceback; what was acknowledged stays stored."""
    process = command.start(*SEND)
    process.stdin.write(line("a").encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    ran = command.end(process)
    assert (130, False) == (ran.code, "Traceback" in ran.err)
    assert 1 == command.counts().received


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("send", "--as", "agent-a", "missing.jsonl"), "missing.jsonl' cannot be read: No such file"),
        (("send", "--as", "agent-a", "."), "'.' cannot be read: Is a directory"),
        (("send", "--as", "", "-"), "--as must be 1 to 128 bytes"),
        (("send", "--as", "a\nb", "-"), "--as must be 1 to 128 bytes"),
    ],
)
def test_what_cannot_be_sent_at_all(command, arguments, why):
    """A file that is not there and a name that is none are one sentence and exit 2."""
    ran = command.run(*arguments)
    assert (2, "", 1) == (ran.code, ran.out, len(ran.err.splitlines()))
    assert why in ran.err


def test_closed_input(command):
    """Without standard input it says so."""
    ran = command.run(*SEND, stdin=b"", preexec_fn=lambda: os.close(0))
    assert (2, "recovery: standard input is closed.\n") == (ran.code, ran.err)


def test_nobody_reads_the_acks(command):
    """Where the reader went away it stops without a traceback, and what was stored stays stored."""
    read, write = os.pipe()
    os.close(read)
    process = command.start(*SEND, stdout=write)
    os.close(write)
    ran = command.end(process, f"{line('a')}\n{line('b')}")
    assert (1, "") == (ran.code, ran.err)
    assert 1 == command.counts().received


def test_output_that_is_full(command):
    """Where the ACK cannot be written it says so."""
    with Path("/dev/full").open("wb") as full:
        ran = command.run(*SEND, stdin=line("a"), stdout=full)
    assert (2, "recovery: the output cannot be written: No space left on device.\n") == (ran.code, ran.err)


def test_a_database_that_goes_away_is_no_refusal(command):
    """The line's number is told, and the exit is 2: the input was good, and may be sent again."""
    process = command.start(*SEND)
    process.stdin.write(line("a").encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    damage(command)
    ran = command.end(process, line("b"))
    assert (2, "", 1) == (ran.code, ran.out, len(ran.err.splitlines()))
    assert ran.err.startswith("line 2: ")


def damage(command):
    """Take a table away."""
    engine = open_engine(command.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE inbox RENAME TO gone")
    engine.dispose()
