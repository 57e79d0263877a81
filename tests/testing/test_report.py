"""What a torture came to: the times and counts of a history that is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recovery.testing.checker import Verdict
from recovery.testing.evidence import Evidence, QueueRows, ReceiverRows, Violation
from recovery.testing.history import Operation
from recovery.testing.log_rules import Resolved
from recovery.testing.torture import timeline
from recovery.testing.torture.company import Event
from recovery.testing.torture.report import facts, keep, recoveries, text, violations
from recovery.testing.torture.run import Outcome, Wish


def move(seq, at, source, target, owner="worker-1.1", fence=1):
    """A row of the journal."""
    return {
        "seq": seq,
        "at": at,
        "task_id": "t",
        "subject": "task",
        "from_state": source,
        "to_state": target,
        "owner": owner,
        "fence": fence,
        "attempt": fence,
    }


JOURNAL = [
    move(1, 100.0, "new", "pending"),
    move(2, 101.0, "pending", "running"),
    move(3, 102.5, "running", "pending"),
    move(4, 103.0, "pending", "running", "worker-2.1", 2),
]
TASK = {"task_id": "t", "state": "running", "payload": "secret", "result": None}
HEARD = Operation("sender-1.1", 1, "receive", 109.0, {"principal": "p", "message_id": "m"}, "ok", 112.0, {})
LATER = Operation("sender-1.1", 2, "receive", 111.0, {"principal": "p", "message_id": "m"}, "ok", 111.5, {})


def outcome(folder, *events, found=(), drained=True, operations=()):
    """What came of it."""
    evidence = Evidence(operations, QueueRows([], [TASK], [], JOURNAL, 0.0), ReceiverRows([], [], ["r", "r", "q"]))
    verdict = Verdict(tuple(found), Resolved(1, 2), (), evidence)
    return Outcome(Wish(None, 60.0, 3, folder), "sqlite", 90.0, drained, events, 5, 4, verdict, 10.0, ())


def test_a_recovery_lasts_until_what_was_held_is_free(tmp_path):
    """By the database's clock, which is ten seconds ahead here: killed at 101.5 with a task that was free at 102.5."""
    killed, idle = Event(91.5, "kill", "worker-1.1"), Event(93.0, "kill", "worker-1.1")
    assert [1.0, 0.0] == list(recoveries(outcome(tmp_path, killed, idle)))


def test_a_crash_lasts_until_the_first_answer(tmp_path):
    """Only an operation that was begun after it counts."""
    crash = Event(110.0, "crash", until=110.8)
    assert [1.5] == list(recoveries(outcome(tmp_path, crash, operations=[HEARD, LATER])))


def test_a_pause_of_the_machine_is_no_recovery(tmp_path):
    """What happened to nobody in particular is left out, as far as it falls into the time."""
    crash, pause = Event(110.0, "crash"), Event(111.0, "pause", until=111.25)
    of = outcome(tmp_path, crash, pause, Event(80.0, "pause", until=90.0), operations=[HEARD, LATER])
    assert [1.25] == list(recoveries(of))
    assert 10.2 == facts(of)["paused_seconds"]


def test_what_must_not_be_is_a_violation(tmp_path):
    """What the checker found, an actor that broke, and work that did not end; and the numbers say what was lost."""
    broken = Event(95.0, "broken", "worker-1.1", detail="ended with 70")
    of = outcome(tmp_path, broken, found=[Violation("one effect", "r", "2")], drained=False, operations=[LATER])
    assert ["one effect", "actors go on", "nothing left"] == [one.rule for one in violations(of)]
    told = facts(of)
    assert (3, 1, 1, 1, 2) == (
        *(told["violations"], told["extra_effects"], told["acknowledged"], told["lost"], told["unknown_not_done"]),
    )
    assert all(finding in text(of) for finding in told["findings"])


def test_nothing_secret_is_kept(tmp_path):
    """The rows of a broken promise are kept for whoever looks into it, without payloads and results."""
    keep(outcome(tmp_path, drained=False), tmp_path)
    assert "running" == json.loads((tmp_path / "rows.json").read_text())["tasks"][0]["state"]
    assert [] == [path for path in tmp_path.iterdir() if "secret" in path.read_text()]


def test_a_sound_run_keeps_no_rows(tmp_path):
    """There is nothing to look into."""
    keep(outcome(tmp_path), tmp_path)
    assert {"report.json", "report.txt", "events.json"} == {path.name for path in tmp_path.iterdir()}


def test_without_matplotlib_there_is_a_sentence(tmp_path, monkeypatch):
    """The picture is optional; what is missing is named."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(timeline.NoPicture, match="matplotlib"):
        timeline.draw(outcome(tmp_path), Path(tmp_path))
