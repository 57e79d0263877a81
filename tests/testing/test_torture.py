"""The torture itself: a sound library passes under every fault, and a broken one is caught."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recovery import Misconfigured
from recovery.testing.torture.places import throw_away
from tests.plugins.commands import PATIENCE_SECONDS, ROOT, wait_for

KEYS = {
    *("seed", "kills", "stops", "cuts", "operations", "acknowledged", "lost", "extra_effects", "fenced", "unknown"),
    *("longest_recovery_seconds", "violations"),
}
MINUTES, FEWER_MINUTES = "0.1", "0.05"
SEEDS = ("7", "8", "9", "10", "11", "12")
RUN = "from recovery.__main__ import main; main()"


def start(*arguments, before="", minutes=MINUTES):
    """A torture of some seconds, in a process where `before` was done to the library."""
    return subprocess.Popen(
        [sys.executable, "-c", f"{before}\n{RUN}", "torture", "--minutes", minutes, "--json", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tortured(*arguments, **more):
    """Its exit code and its report."""
    process = start(*arguments, **more)
    out, err = process.communicate(timeout=4 * PATIENCE_SECONDS)
    assert out, err
    return process.returncode, json.loads(out), err


@pytest.fixture
def url(backend, tmp_path, request):
    """A database that has nothing of recovery's in it."""
    return f"sqlite:///{tmp_path}/mine.db" if backend == "sqlite" else request.getfixturevalue("empty_url")


def test_a_sound_library_keeps_every_promise(url, tmp_path):
    """Faults of each kind, and no violation; the report has every number, and the folder what it was made of.

    In some seconds on a slow machine one kind may not come about; then another seed has to bring it.
    """
    missing = {"kills", "stops", "cuts", "operations", "acknowledged", "unknown"}
    for seed in SEEDS:
        report = kept(url, seed, tmp_path / seed)
        missing -= {name for name in missing if report[name] > 0}
        if not missing:
            return
    pytest.fail(f"in no run: {missing}")


def kept(url, seed, out):
    """The report of a torture that found nothing."""
    code, report, err = tortured("--url", url, "--seed", seed, "--out", str(out))
    assert (0, [], 0, 0, 0) == (
        *(code, report["findings"], report["violations"], report["lost"], report["extra_effects"]),
    ), err
    assert set() == KEYS - set(report)
    assert int(seed) == report["seed"]
    assert report["longest_recovery_seconds"] >= 0
    (folder,) = out.iterdir()
    assert report == json.loads((folder / "report.json").read_text())
    assert len(list((folder / "histories").iterdir())) > 11
    return report


LOSES_MESSAGES = """
import itertools
from recovery import Ack, Queue
from recovery.testing.promises import task_id
sound = Queue.receive
numbers = itertools.count()
def receive(self, envelope, auth):
    if next(numbers) % 5 == 1:
        return Ack("stored", task_id(auth.principal, envelope.message_id), False)
    return sound(self, envelope, auth)
Queue.receive = receive
"""
APPLIES_TWICE = """
from recovery.repositories.receipts import ReceiptRepository
sound = ReceiptRepository._insert
ReceiptRepository._insert = lambda self, *args: sound(self, *args) or True
"""
FENCES_NOBODY = """
from recovery.repositories import finishing, leases
leases._broken = lambda *args: None
sound = finishing._end_owned
def end_whatever_is_held(leased):
    statement = sound(leased)
    statement._where_criteria = (statement._where_criteria[0], leased.table.c.owner.is_not(None))
    return statement
finishing._end_owned = end_whatever_is_held
"""
DIES_OF_LOST_ANSWERS = """
from recovery.errors import CommitUnknown
from recovery.testing.torture import actors, roles
actors.EXPECTED = tuple(kind for kind in actors.EXPECTED if kind is not CommitUnknown)
"""


@pytest.mark.parametrize(
    ("mutant", "rules"),
    [
        (LOSES_MESSAGES, {"acknowledged is stored"}),
        (APPLIES_TWICE, {"one effect", "sent has one effect"}),
        (DIES_OF_LOST_ANSWERS, {"actors go on"}),
    ],
    ids=["loses_messages", "applies_twice", "dies_of_lost_answers"],
)
def test_a_broken_library_is_caught(url, mutant, rules):
    """Exit 1, and the finding has the rule's name."""
    assert rules <= caught(url, mutant, rules.issubset, FEWER_MINUTES)


def test_stale_claims_that_are_let_through_are_caught(tmp_path):
    """On SQLite a claim is checked in one function, and once more in the UPDATE of a finish.

    Without both, workers end what is no longer theirs.
    """
    rules = {"nothing after the lease", "moves are asked for", "leases never overlap"}
    assert rules & caught(f"sqlite:///{tmp_path}/mine.db", FENCES_NOBODY, rules.intersection, MINUTES)


def caught(url, mutant, enough, minutes):
    """The rules that the torture of a broken library found broken, in the first run that found `enough`.

    In some seconds on a slow machine it may happen that nobody is ever late, or that no answer is lost where it
    matters: then it is tried again with another seed. Of a break that is never met, nothing is found in any of them.
    """
    found = set()
    for seed in SEEDS:
        code, report, err = tortured("--url", url, "--seed", seed, before=mutant, minutes=minutes)
        found = {finding.partition(":")[0] for finding in report["findings"]}
        assert int(bool(found)) == code, err
        if enough(found):
            break
    return found


@pytest.mark.machine
def test_a_full_disk_breaks_no_promise(tmp_path):
    """Room runs out and comes back, while everything else goes wrong as well; nothing is mounted any more after it."""
    mounts = Path("/proc/self/mounts").read_text()
    code, report, err = tortured("--url", f"sqlite:///{tmp_path}/mine.db", "--seed", "7", "--full-disk")
    assert (0, []) == (code, report["findings"]), err
    assert report["full_disks"] > 0
    assert ([], mounts) == (list(tmp_path.iterdir()), Path("/proc/self/mounts").read_text())


def test_a_full_disk_needs_root_and_a_file(monkeypatch, tmp_path, postgres_database):
    """Whoever may not mount is told so, and so is who names a server; nothing is left."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for url in (f"sqlite:///{tmp_path}/mine.db", postgres_database):
        with pytest.raises(Misconfigured, match="--full-disk"), throw_away(url, full_disk=True):
            pass
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("wish", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_torture_leaves_nothing(tmp_path, wish):
    """Ctrl-C and a supervisor's signal end every process and take the files away."""
    process = start("--url", f"sqlite:///{tmp_path}/mine.db")
    assert "under faults" in process.stderr.readline()
    assert list(tmp_path.glob("*/queue.db"))
    process.send_signal(wish)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert 128 + wish == process.returncode
    wait_for(lambda: not list(tmp_path.iterdir()))


@pytest.mark.parametrize(
    "arguments",
    [("--url", "sqlite:///x.db", "--embedded"), ("--minutes", "0"), ("--minutes", "nan"), ("--url", "mysql://x")],
)
def test_what_cannot_be_meant_is_refused(arguments):
    """With exit 2 and a sentence, before anything is started."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "torture", *arguments], capture_output=True, text=True, check=False
    )
    assert (2, "") == (ran.returncode, ran.stdout)
    assert ran.stderr
