"""A company of actors of one release or two on one database, and the verdict of the checker on all that they did."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recovery import Counts, Queue
from recovery.testing import Place, Verdict, check, in_folder, read_histories
from tests.upgrade.releases import PATIENCE_SECONDS, Release

MET: Final = 5
"""How many answers each actor must have had before the next thing happens."""


@dataclass
class Member:
    """A running actor."""

    name: str
    role: str
    release: Release
    history: Path
    process: subprocess.Popen[bytes]

    def answers(self) -> int:
        """How many operations of it were answered so far, but for claims that found nothing."""
        written = self.history.read_bytes() if self.history.exists() else b""
        return written.count(b'"event": "ok"') - written.count(b'"claims": []')


@dataclass
class Company:
    """All actors on one database; their histories and what they complained of are in a folder."""

    url: str
    folder: Path
    members: list[Member] = field(default_factory=list)

    def hire(self, release: Release, **cast: int) -> None:
        """Start actors of a release, as many of each role."""
        for role, count in cast.items():
            for number in range(1, count + 1):
                name = f"{release.name}-{role}-{number}"
                history = self.folder / f"{name}.jsonl"
                with (self.folder / f"{name}.txt").open("wb") as said:
                    process = release.start("acting.py", role, self.url, history, name, stderr=said)
                self.members.append(Member(name, role, release, history, process))

    def until_all_met(self, more: int = MET) -> None:
        """Wait until every actor that still runs has had so many answers more."""
        running = [one for one in self.members if one.process.returncode is None]
        wanted = {one.name: one.answers() + more for one in running}
        until = time.monotonic() + PATIENCE_SECONDS
        while late := [one for one in running if one.answers() < wanted[one.name]]:
            ended = [one.name for one in running if one.process.poll() is not None]
            assert [] == ended, "".join((self.folder / f"{name}.txt").read_text() for name in ended)
            assert time.monotonic() < until, f"no answers any more: {[one.name for one in late]}"
            time.sleep(0.02)

    def let_go(self, release: Release | None = None, role: str | None = None) -> None:
        """Ask actors to end, and see that each of them ended well."""
        for one in self.members:
            leaves = (release is None or one.release is release) and (role is None or one.role == role)
            if leaves and one.process.returncode is None:
                one.process.communicate(timeout=PATIENCE_SECONDS)
                assert 0 == one.process.returncode, (self.folder / f"{one.name}.txt").read_text()

    def until_drained(self) -> None:
        """Wait until nothing is left to work on and nothing to deliver."""
        until = time.monotonic() + PATIENCE_SECONDS
        with Queue.open(self.url) as queue:
            while left := _left(queue.counts()):
                assert time.monotonic() < until, left
                time.sleep(0.05)

    def verdict(self, *, drained: bool = True) -> Verdict:
        """What the checker finds in all histories and the database."""
        here = Place(self.url)
        return check(read_histories(in_folder(self.folder)), here, here, drained=drained)

    def close(self) -> None:
        """End whoever is left after a failure."""
        for one in self.members:
            if one.process.poll() is None:
                one.process.kill()
                one.process.communicate()


def _left(counts: Counts) -> dict[str, int]:
    replies = {f"reply {state}": counts.delivery.get(state, 0) for state in ("pending", "sending")}
    return {state: number for state, number in {**counts.open, **replies}.items() if number}
