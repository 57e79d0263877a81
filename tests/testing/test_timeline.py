"""The timeline: what a run came to stands where it happened, in the row of whom it happened to."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType

import pytest

from recovery.testing.checker import Verdict
from recovery.testing.evidence import Evidence, QueueRows, ReceiverRows
from recovery.testing.history import Operation
from recovery.testing.log_rules import Resolved
from recovery.testing.torture import timeline
from recovery.testing.torture.company import Event
from recovery.testing.torture.run import Outcome, Wish

BEGAN = 1000.0
ROWS = ["sender-1", "worker-1", "worker-2"]
EVENTS = (
    Event(1000.5, "life", "worker-2.1", until=1004.5),
    Event(1001.0, "life", "worker-1.1", until=1003.0),
    Event(1003.5, "life", "worker-1.2", until=1009.0),
    Event(1000.25, "life", "sender-1.1", until=1009.5),
    Event(1002.0, "stop", "worker-1.1", until=1003.5),
    Event(1003.0, "kill", "worker-1.1"),
    Event(1004.5, "exit", "worker-2.1", detail="finish, before COMMIT"),
    Event(1005.0, "crash", until=1005.75),
    Event(1006.0, "crash", until=1006.25),
    Event(1007.0, "terminate", until=1007.0),
    Event(1008.0, "terminate", until=1008.0),
    Event(1008.5, "calm"),
)


class Axes:
    """Keeps what is drawn on it: each call by its name."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *given, **named: self.calls.append((name, given, named))

    def drawn(self, name):
        """The arguments of each call of that name."""
        return [(given, named) for called, given, named in self.calls if called == name]

    def labelled(self, name, label):
        """The positional arguments of the one call that has this label."""
        (found,) = [given for given, named in self.drawn(name) if named.get("label") == label]
        return found


def heard(name, ended, event="ok"):
    """An operation that was answered then."""
    return Operation("worker-1.1", 1, name, BEGAN, {}, event, ended)


def outcome(folder, *operations, events=EVENTS):
    """What came of a run that began at BEGAN."""
    evidence = Evidence(operations, QueueRows([], [], [], [], 0.0), ReceiverRows([], [], []))
    verdict = Verdict((), Resolved(0, 0), (), evidence)
    return Outcome(Wish(None, 10.0, 3, folder), "sqlite", BEGAN, True, events, 0, 0, verdict, 0.0, ())  # noqa: FBT003


@pytest.fixture
def upper(tmp_path):
    """The half of the picture with the lives."""
    axes = Axes()
    timeline._lives(axes, outcome(tmp_path))
    return axes


def test_each_actor_has_a_row_with_all_its_lives(upper):
    """Sorted by name, the first on top; a life's bar begins and ends when the life did."""
    assert [((range(3), ROWS), {})] == upper.drawn("set_yticks")
    assert [((), {})] == upper.drawn("invert_yaxis")
    rows, lengths, _, begins = upper.labelled("barh", "alive")
    assert [(2, 0.5, 4.0), (1, 1.0, 2.0), (1, 3.5, 5.5), (0, 0.25, 9.25)] == list(
        zip(rows, begins, lengths, strict=True)
    )
    rows, lengths, _, begins = upper.labelled("barh", "stopped past its lease")
    assert ([1], [2.0], [1.5]) == (rows, begins, lengths)


def test_how_a_life_ended_is_marked_in_its_row(upper):
    """Killed from outside, or by its own hand at a COMMIT."""
    assert ([3.0], [1], "x") == upper.labelled("plot", "killed")
    assert ([4.5], [2], "^") == upper.labelled("plot", "ended at a COMMIT")


def test_what_befell_the_server_runs_through_all_rows(upper):
    """A crash lasts until it was back; each kind is named once, however often it came."""
    stopped, ended = "server stopped", "session ended by the server"
    assert [((5.0, 5.75), stopped), ((6.0, 6.25), None)] == [
        (given, named["label"]) for given, named in upper.drawn("axvspan")
    ]
    assert [((7.0,), ended), ((8.0,), None)] == [(given, named["label"]) for given, named in upper.drawn("axvline")]


def test_work_is_counted_by_the_second_in_which_it_was_answered(tmp_path):
    """What failed, what nobody heard and other verbs are not counted; a line shows when the faults were over."""
    axes = Axes()
    answered = [heard("finish", BEGAN + at) for at in (0.1, 0.9, 2.0)]
    others = [heard("finish", BEGAN + 1, "fail"), heard("finish", None), heard("claim", BEGAN + 1)]
    timeline._work(axes, outcome(tmp_path, *answered, *others, heard("receive", BEGAN + 1.5)))
    lines = {named["label"]: (list(given[0]), given[1]) for given, named in axes.drawn("plot")}
    assert {"receive": ([0, 1], [0, 1]), "finish": ([0, 1, 2], [2, 0, 1]), "accept": ([0], [0])} == lines
    assert [(8.5,)] == [given for given, _ in axes.drawn("axvline")]


class Drawing:
    """Stands for matplotlib, which the tests do without: a figure of two halves that writes what it was told."""

    def __init__(self, **size):
        self.halves = [Axes(), Axes()]

    def subplots(self, rows, columns, **how):
        """Both halves, which share their seconds."""
        assert (2, 1, True) == (rows, columns, how["sharex"])
        return self.halves

    def savefig(self, path, **how):
        """One file."""
        titles = [given[0] for half in self.halves for given, _ in half.drawn("set_title")]
        path.write_text(f"{titles} {how}")


@pytest.fixture
def drawing(monkeypatch):
    """The parts of matplotlib that are used."""

    def module(name, **parts):
        made = ModuleType(name)
        vars(made).update(parts)
        monkeypatch.setitem(sys.modules, name, made)

    module("matplotlib", rc_context=contextlib.nullcontext)
    module("matplotlib.backends")
    module("matplotlib.backends.backend_agg", FigureCanvasAgg=lambda figure: figure)
    module("matplotlib.figure", Figure=Drawing)


def test_the_same_run_is_the_same_picture(drawing, tmp_path):
    """One file for browsers and one for everything else; neither tells when it was drawn."""
    paths = timeline.draw(outcome(tmp_path), tmp_path)
    assert [tmp_path / "timeline.svg", tmp_path / "timeline.png"] == paths
    assert "{'metadata': {'Date': None}}" in paths[0].read_text()
    assert all("sqlite, seed 3" in path.read_text() for path in paths)


def test_a_run_in_which_nothing_happened_has_a_picture(drawing, tmp_path):
    """No row, no mark, no second."""
    assert all(path.is_file() for path in timeline.draw(outcome(tmp_path, events=()), tmp_path))
