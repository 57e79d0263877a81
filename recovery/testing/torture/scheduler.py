"""The scheduler of faults: what happens to whom and when follows from the seed; what it meets there does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from recovery.testing.reading import snapshot
from recovery.testing.torture.actors import WELL
from recovery.testing.torture.company import Actor, Company, forked
from recovery.testing.torture.disk import fill
from recovery.testing.torture.dying import ENDED
from recovery.testing.torture.places import Places, terminate_one
from recovery.testing.torture.plan import LEASE_SECONDS, SENDER, Rates
from recovery.testing.torture.timetable import Fault, Timetable, chosen

TICK_SECONDS: Final = 0.01
DRAIN_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 2.0
RESTART_SECONDS: Final = (0.02, 0.3)
STOPPED_MAX: Final = 4
"""Of all actors so many may be frozen at once: the others have to see that they are."""
STOPPED_LEASES: Final = (1.05, 1.6)
FULL_SECONDS: Final = (0.2, 1.5)
KINDS: Final = ("kill", "stop", "terminate", "crash", "full")
DONE, NOT_DONE = 0, 1


class Breakable(Protocol):
    """A server of our own at `url`, which may be broken in the middle of everything, and be started again."""

    @property
    def url(self) -> str: ...

    def crash(self) -> None: ...

    def start(self) -> None: ...


@dataclass(slots=True)
class Helper:
    """A process of the scheduler's own: what it does, and since when."""

    kind: str
    begun: float


class Scheduler:
    """Runs a company under faults for as long as the plan says, and then to the end of all work."""

    def __init__(
        self,
        company: Company,
        places: Places,
        rates: Rates,
        server: Breakable | None,
        progress: Callable[[str], object],
    ) -> None:
        self._company = company
        self._places = places
        self._server = server
        self._progress = progress
        self._restarts = company.plan.random("restarts")
        self._helpers: dict[int, Helper] = {}
        self._shown = 0.0
        self._faults: dict[str, Callable[[Fault], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "terminate": self._terminate,
            "crash": self._crash,
            "full": self._fill,
        }
        kinds = dict(
            zip(KINDS, (rates.kills, rates.stops, rates.terminations, rates.crashes, rates.full_disks), strict=True)
        )
        self._timetable = Timetable(lambda kind: company.plan.random("faults", kind), kinds)

    def run(self) -> None:
        """Faults until the time is over. Where the machine pauses, so does the timetable."""
        plan = self._company.plan
        for actor in self._company.actors:
            self._company.start(actor)
        before, elapsed = plan.began, 0.0
        while elapsed < plan.seconds:
            now = time.time()
            elapsed += now - before - self._paused(before, now)
            before = now
            self._look_after(now, "under faults")
            for fault in self._timetable.due(elapsed):
                self._faults[fault.kind](fault)
            time.sleep(TICK_SECONDS)

    def _paused(self, before: float, now: float) -> float:
        """How long the scheduler itself did not run, where that is worth a word: a machine may be stopped, too."""
        if now - before < PAUSE_SECONDS:
            return 0.0
        self._company.note("pause", until=now, at=before)
        return now - before

    def drain(self) -> bool:
        """No more faults; until everything is done, or for two minutes. Whether it was."""
        self._company.plan.tally.be_calm()
        self._company.note("calm")
        self._company.wake(float("inf"))
        until = time.time() + DRAIN_SECONDS
        while self._is_sending() or self._helpers:
            self._look_after(time.time(), "draining")
            if time.time() > until:
                return False
            time.sleep(TICK_SECONDS)
        watcher = forked(lambda: _watch(self._places, until))
        while True:
            self._look_after(time.time(), "draining")
            pid, status = os.waitpid(watcher, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status) == DONE
            time.sleep(TICK_SECONDS)

    def _is_sending(self) -> bool:
        return any(actor.is_alive or actor.due for actor in self._company.actors if actor.role == SENDER)

    def _look_after(self, now: float, what: str) -> None:
        self._reap(now)
        self._company.wake(now)
        for actor in self._company.actors:
            if actor.due and actor.due <= now:
                actor.due = 0.0
                self._company.start(actor)
        if now - self._shown >= 1.0:
            self._shown = now
            self._progress(self._line(now, what))

    def _reap(self, now: float) -> None:
        for pid in [actor.pid for actor in self._company.actors if actor.is_alive] + list(self._helpers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if not found:
                continue
            if pid in self._helpers:
                self._helped(self._helpers.pop(pid), os.waitstatus_to_exitcode(status))
            elif (actor := self._company.ended(pid, status)) is not None:
                self._after(actor, os.waitstatus_to_exitcode(status), now)

    def _after(self, actor: Actor, code: int, now: float) -> None:
        if code in ENDED.values() and actor.doom is not None:
            self._company.met[actor.doom.verb, actor.doom.place] += 1
            self._company.note("exit", actor.life, detail=f"{actor.doom.verb}, {actor.doom.place} COMMIT")
        elif code not in (WELL, -9):
            self._company.note("broken", actor.life, detail=f"ended with {code}")
        if code != WELL:
            actor.due = now + self._restarts.uniform(*RESTART_SECONDS)

    def _helped(self, helper: Helper, code: int) -> None:
        if code == DONE:
            self._company.note(helper.kind, until=time.time(), at=helper.begun)
        elif helper.kind == "crash":
            self._company.note("broken", detail="the server did not come back")

    def _kill(self, fault: Fault) -> None:
        actor = chosen(self._company.actors, fault.whom, lambda one: one.is_alive)
        if actor is not None:
            self._company.kill(actor)

    def _stop(self, fault: Fault) -> None:
        actors = self._company.actors
        actor = chosen(actors, fault.whom, lambda one: one.is_alive and one.stopped_until is None)
        if actor is not None and sum(one.stopped_until is not None for one in actors) < STOPPED_MAX:
            self._company.stop(actor, LEASE_SECONDS * _between(*STOPPED_LEASES, fault.size))

    def _terminate(self, fault: Fault) -> None:
        url, name = self._company.plan.direct_url, self._places.name
        self._help("terminate", lambda: terminate_one(url, name, fault.whom))

    def _crash(self, _: Fault) -> None:
        server = self._server
        if server is None or self._is_helped("crash"):
            return

        def crash() -> bool:
            server.crash()
            server.start()
            return True

        self._help("crash", crash)

    def _fill(self, fault: Fault) -> None:
        folder, seconds = self._places.small_disk, _between(*FULL_SECONDS, fault.size)
        if folder is not None and not self._is_helped("full"):
            self._help("full", lambda: fill(folder, seconds))

    def _is_helped(self, kind: str) -> bool:
        return any(helper.kind == kind for helper in self._helpers.values())

    def _help(self, kind: str, do: Callable[[], bool]) -> None:
        def be() -> NoReturn:
            os._exit(DONE if do() else NOT_DONE)

        self._helpers[forked(be)] = Helper(kind, time.time())

    def _line(self, now: float, what: str) -> str:
        company, tally = self._company, self._company.plan.tally
        kinds = [event.kind for event in company.events]
        counted: dict[str, Any] = {name: kinds.count(name) for name in ("exit", *KINDS)}
        counted |= {name: tally.total(name) for name in ("cuts", "operations", "acknowledged", "fenced", "unknown")}
        told = ", ".join(f"{name} {count}" for name, count in counted.items() if count)
        return f"{now - company.plan.began:5.0f} s {what}: {told}; open {tally.total('open')}"


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * share


OPEN: Final = (
    "SELECT (SELECT count(*) FROM tasks WHERE state IN ('pending', 'running'))"
    " + (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending'))"
)


def _watch(places: Places, until: float) -> NoReturn:
    """Look at the queue until nothing is open, in a process of its own."""
    while time.time() < until:
        try:
            with snapshot(places.queue_url) as seen:
                if seen.all(OPEN)[0][0] == 0:
                    os._exit(DONE)
        except Exception:  # noqa: BLE001, S110 - whatever the driver says just now, it is asked again
            pass
        time.sleep(0.2)
    os._exit(NOT_DONE)
