"""The demo when something is not as it must be: it says what, stops there, and its worker wants nothing more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recovery import AuthContext, Envelope, Queue, migrate
from recovery.cli import demo_worker
from recovery.cli.demo_worker import PREFIX, URL_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
AUTH = AuthContext("agent-a")
STORED_ANYWAY = """
from recovery import Queue
sound = Queue.finish
Queue.finish = lambda self, claim, result: None
"""
LEASE_OF_NOTHING = """
from recovery.cli import demo
demo.SHORT_LEASE_SECONDS = 0.0
"""


@pytest.mark.parametrize(
    ("before", "out", "err"),
    [
        (STORED_ANYWAY, "the answer to the stale commit: expected Fenced, found stored.", ""),
        (
            LEASE_OF_NOTHING,
            "expected a claim from the worker process, but it ended without one.",
            "recovery demo, worker-1: ",
        ),
    ],
    ids=["stale commit taken", "worker refused"],
)
def test_what_differs_is_said_and_ends_it(tmp_path, before, out, err):
    """Exit 1; a worker's own refusal is its own sentence; no file and no process is left."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{before}\nimport typer; from recovery.cli.demo import demo; typer.run(demo)"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (1, f"NOT AS IT MUST BE: {out}") == (ran.returncode, ran.stdout.splitlines()[-1])
    assert (err, int(bool(err))) == (ran.stderr[: len(err)], len(ran.stderr.splitlines()))
    assert [] == list(tmp_path.iterdir())


@pytest.fixture
def demo_url(empty_url):
    """A database with the demo's tables, and one message in them."""
    migrate(empty_url, table_prefix=PREFIX)
    return empty_url


def opened(url):
    """The demo's queue."""
    return Queue.open(url, table_prefix=PREFIX, allowed_sources={"agent-a"})


def test_a_worker_whose_demo_is_gone_commits_nothing(demo_url):
    """It ends, and its lease gives the task back: nobody wants the result any more."""
    with opened(demo_url) as queue:
        task = queue.receive(Envelope("m", "agent-a", {"numbers": [2, 3]}, 4e9), AUTH).task_id
        with subprocess.Popen(
            [sys.executable, "-m", "recovery.cli.demo_worker", "worker-1", "60"],
            cwd=ROOT,
            env={**os.environ, URL_VARIABLE: demo_url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as worker:
            assert worker.stdout is not None
            assert task in worker.stdout.readline()
            out, err = worker.communicate(timeout=60)
        assert (1, "", "") == (worker.returncode, out, err)
        found = queue.task(task)
        assert ("running", 1, "worker-1") == (found.state, found.fence, found.owner)


def test_a_worker_does_not_wait_for_ever(demo_url, monkeypatch, capsys):
    """Where there is nothing to claim it gives up, and says nothing that the demo could take for a claim."""
    monkeypatch.setenv(URL_VARIABLE, demo_url)
    monkeypatch.setattr(sys, "argv", ["demo_worker", "worker-1", "60"])
    monkeypatch.setattr(demo_worker, "PATIENCE_SECONDS", 0.2)
    assert 1 == demo_worker.main()
    assert ("", "") == capsys.readouterr()
