"""What the command shows to a person at a terminal, and does not write into a pipe."""

from __future__ import annotations

import io
import os
import pty
import sys
import termios

import pytest

from recovery.cli.torture import EVERY, Progress
from tests.plugins.commands import line

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
NARROWEST = 48
"""However narrow a terminal is, lines are not broken shorter than that."""


@pytest.fixture
def shown(command, monkeypatch):
    """Runs a command with a terminal as its output, and returns what stood on it."""
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments, columns=80, **variables):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        process = command.start(*arguments, stdout=theirs, **{"TERM": "xterm", **variables})
        os.close(theirs)
        text = read(ours)
        ran = command.end(process)
        assert (0, "") == (ran.code, ran.err)
        return text

    return run


def read(terminal):
    """All that is written to a terminal until nobody has it open any more, which Linux answers with an error."""
    pieces = []
    try:
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    except OSError:
        pass
    finally:
        os.close(terminal)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def test_what_is_zero_steps_back(command, shown):
    """Only its lines are dim, and without that it is what a pipe gets."""
    command.send(line("a"))
    text = shown("status")
    for row in text.splitlines():
        assert (row.startswith(DIM), row.endswith(PLAIN)) == (row.removesuffix(PLAIN).endswith(" 0"),) * 2
    assert text.count(DIM) > 8
    assert command.run("status").out == text.replace(DIM, "").replace(PLAIN, "")


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"NO_COLOR": ""}, {"TERM": "dumb"}], ids=str)
def test_who_wants_no_colour_gets_none(command, shown, variable):
    """By either of the two conventions, the first of which counts also where it is empty."""
    assert command.run("status").out == shown("status", **variable)


@pytest.mark.parametrize(("columns", "widest"), [(100, 100), (60, 60), (10, NARROWEST)])
def test_a_story_is_broken_where_the_terminal_ends(command, shown, columns, widest):
    """Nothing is left out, and what goes on stands under the words, not under the name of its stage."""
    (task,) = command.send(line("a message whose name is long enough to be broken in two"))
    whole = command.run("explain", task).out
    told = shown("explain", task, columns=columns)
    assert max(map(len, told.splitlines())) <= widest < max(map(len, whole.splitlines()))
    assert "".join(without_times(whole).split()) == "".join(without_times(told).split())
    begun = {row[:12] for row in whole.splitlines()}
    assert {row[:12] for row in told.splitlines()} <= begun | {" " * 12}


def without_times(story):
    """A story as it is at any time: the line that says as of when it is told is left out."""
    return story.partition("received")[2]


@pytest.fixture
def stream(monkeypatch):
    """Makes standard error a stream that is, or is not, a terminal; in the test itself, since pytest has its own."""

    def make(*, is_terminal):
        made = io.StringIO()
        made.isatty = lambda: is_terminal  # type: ignore[method-assign] # that is what it stands for
        monkeypatch.setattr(sys, "stderr", made)
        return made

    return make


def test_progress_is_one_line_that_is_written_over(stream):
    """Each line takes the place of the one before; the last one stays, and what follows begins below it."""
    terminal = stream(is_terminal=True)
    progress = Progress()
    progress("first, and longer")
    progress("second")
    progress.end()
    assert "\r\x1b[2Kfirst, and longer\r\x1b[2Ksecond\n" == terminal.getvalue()


def test_elsewhere_every_tenth_line_stands(stream):
    """A log keeps one line of ten, beginning with the first."""
    log = stream(is_terminal=False)
    progress = Progress()
    for number in range(2 * EVERY + 1):
        progress(f"line {number}")
    progress.end()
    assert ["line 0", "line 10", "line 20"] == log.getvalue().splitlines()


def test_a_wish_to_end_is_not_forgotten(stream):
    """Where the exit that a signal raises is dropped, the next line raises it again, with the signal's number."""
    stream(is_terminal=True)
    progress = Progress()
    for end in (lambda: progress.stop(15, None), lambda: progress("a line"), lambda: progress("another")):
        with pytest.raises(SystemExit) as ended:
            end()
        assert 143 == ended.value.code
