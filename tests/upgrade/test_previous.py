"""The previous release's code at the new schema, and this release's at the old one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery import (
    AsyncQueue,
    AsyncReceiver,
    AuthContext,
    Envelope,
    ManualClock,
    Queue,
    Receiver,
    SchemaMismatch,
    migrate,
)
from recovery.schema import VERSION
from tests.upgrade.catalogs import seen
from tests.upgrade.interrupting import state
from tests.upgrade.releases import PATIENCE_SECONDS, Release, current


def test_it_is_the_previous_release_that_runs(previous: Release, old_url: str) -> None:
    """Its code and its ladder come from the wheel: it knows 0001 and opens what it made."""
    said = previous.asked("opening.py", "open", old_url)
    assert ("0001", [], []) == (said["version"], said["queue"], said["receiver"])
    assert previous.folder == Path(said["from"]).parents[1]
    assert VERSION == current().asked("opening.py", "open", old_url)["version"]


def test_it_makes_the_older_step(old_url: str, new_database: Callable[[], str]) -> None:
    """Upgraded from what the previous release made or from nothing, a database ends in the same catalog and rows."""
    migrate(old_url)
    migrate(fresh := new_database())
    assert state(fresh) == state(old_url)


def test_it_refuses_to_open_the_new_schema(previous: Release, old_url: str) -> None:
    """Started anew after an upgrade it says that it is too old, upgrades nothing, and changes nothing."""
    migrate(old_url)
    before = state(old_url)
    said = previous.asked("opening.py", "open", old_url)
    wanted = ["SchemaMismatch", "the tables are at 0002, and this release only knows 0001; upgrade recovery."]
    assert [wanted, wanted] == [said["queue"], said["receiver"]]
    refused = previous.asked("opening.py", "migrate", old_url)["migrate"]
    assert ("SchemaMismatch", True) == (refused[0], "upgrade recovery" in refused[1])
    assert before == state(old_url)


def open_async(opened: Callable[[str], Any]) -> Callable[[str], Any]:
    """An asynchronous door, called like the others."""

    async def wait(url: str) -> Any:
        return await opened(url)

    return lambda url: asyncio.run(wait(url))


def test_this_release_refuses_the_old_schema(old_url: str) -> None:
    """Every door says what to run, and changes nothing."""
    before = state(old_url)
    for opened in (Queue.open, Receiver.open, open_async(AsyncQueue.open), open_async(AsyncReceiver.open)):
        with pytest.raises(SchemaMismatch, match=r"at 0001, .* needs 0002; run: recovery migrate$"):
            opened(old_url)
    assert before == state(old_url)


def answers(release: Release, url: str, between: Callable[[str], object]) -> Any:
    """What every verb answers that was called on a queue which was open before something happened to its database."""
    process = release.start("verbs.py", url)
    assert process.stdin is not None
    assert process.stdout is not None
    assert b"ready\n" == process.stdout.readline()
    between(url)
    out, _ = process.communicate(b"go\n", timeout=PATIENCE_SECONDS)
    assert 0 == process.returncode
    return json.loads(out)


def test_every_verb_of_it_on_the_new_schema(
    previous: Release, new_old: Callable[[], str], backend: str, tell: Callable[[str], None]
) -> None:
    """A queue that was open before the upgrade answers and stores, verb by verb, what it does without one."""
    without, upgraded = new_old(), new_old()
    wanted = answers(previous, without, lambda _: None)
    assert wanted == answers(previous, upgraded, migrate)
    migrate(without)
    assert state(without) == state(upgraded)
    tell(f"verbs of the previous release on the new schema: {backend}: {len(wanted)} answers, all as on its own")


def test_what_it_stores_has_the_defaults(previous: Release, old_url: str) -> None:
    """A task that it stores in the new schema is in the queue `default` with priority 0, and this release claims it."""
    answers(previous, old_url, migrate)
    with seen(old_url) as look:
        assert [("default", 0)] == look.all("SELECT DISTINCT queue, priority FROM tasks")
    with Queue.open(old_url, allowed_sources={"agent-a"}, clock=ManualClock(1500.0)) as queue:
        again = Envelope("new", "agent-a", {"name": "new"}, deadline=2000.0)
        ack = queue.receive(again, AuthContext("agent-a"))
        assert ack.duplicate
        assert queue.task(ack.task_id) is not None
