"""The histories of actors: on disk before anything is done, readable after any end."""

from __future__ import annotations

import os

import pytest

from recovery import Fenced
from recovery.testing.history import DamagedHistory, History, in_folder, read_histories


@pytest.fixture
def path(tmp_path):
    """Where a history will be."""
    return tmp_path / "worker.jsonl"


def test_an_operation_is_its_two_lines(path):
    """What was asked and what was answered come together again, in the order in which it was begun."""
    with History(path, "worker") as history:
        first = history.invoke("claim", owner="w", limit=1)
        second = history.invoke("finish", fence=1)
        second.fail(Fenced("task", 1, "it is done"))
        first.ok(claims=[])
    claim, finish = read_histories([path])
    assert ("claim", "ok", {"owner": "w", "limit": 1}, {"claims": []}) == (
        *(claim.name, claim.event, claim.asked, claim.answered),
    )
    assert ("finish", "fail", {"error": "Fenced"}) == (finish.name, finish.event, finish.answered)
    assert claim.begun <= finish.begun
    assert (finish.ended or 0) <= (claim.ended or 0)


def test_what_was_never_answered_is_unknown(path):
    """A process that died in the middle leaves an operation without an end, and so does one that says so."""
    with History(path, "worker") as history:
        history.invoke("claim")
        history.invoke("finish").unknown(OSError())
    claim, finish = read_histories([path])
    assert ("unknown", None, "unknown") == (claim.event, claim.ended, finish.event)
    assert finish.ended is not None


def test_a_line_is_on_disk_when_the_call_returns(path, monkeypatch):
    """Each line is synced before anything else happens."""
    synced = []
    real = os.fsync

    def sync(file):
        real(file)
        synced.append(path.read_bytes().count(b"\n"))

    monkeypatch.setattr(os, "fsync", sync)
    with History(path, "worker") as history:
        history.invoke("claim").ok()
    assert [1, 2] == synced


def test_a_torn_last_line_is_left_out(path):
    """A killed process may leave half a line; what stands before it counts, at every length."""
    with History(path, "worker") as history:
        history.invoke("claim").ok(claims=[])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found = [one.event for one in read_histories([path])]
        assert ([] if length < first else ["unknown"] if length < len(whole) else ["ok"]) == found


@pytest.mark.parametrize(
    "lines",
    [
        ["{", "good"],
        ["good", "good"],
        ["{}"],
        ['{"actor": "w", "id": 1, "name": "claim", "event": "ok", "at": 1, "said": {}}'],
        ["good", *['{"actor": "w", "id": 1, "name": "claim", "event": "ok", "at": 1, "said": {}}'] * 2],
        ["good", '{"actor": "w", "id": 1, "name": "claim", "event": "perhaps", "at": 1, "said": {}}'],
    ],
)
def test_any_other_damage_is_refused(path, lines):
    """A history that cannot be whole proves nothing."""
    good = '{"actor": "w", "id": 1, "name": "claim", "event": "invoke", "at": 1, "said": {}}'
    path.write_text("".join((good if line == "good" else line) + "\n" for line in lines))
    with pytest.raises(DamagedHistory):
        read_histories([path])


def test_each_life_has_a_file_of_its_own(path):
    """Nobody writes on in the file of another life, which may end in the middle of a line; and it is private."""
    with History(path, "worker"):
        assert 0o600 == path.stat().st_mode & 0o777
        with pytest.raises(FileExistsError):
            History(path, "worker")
    assert [path] == in_folder(path.parent)
