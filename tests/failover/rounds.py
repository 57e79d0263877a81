"""Failing over under load: the torture's own actors, and in place of its crashes a primary that is killed for good."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recovery.testing.checker import Place, check
from recovery.testing.history import in_folder, read_histories
from recovery.testing.reading import snapshot
from recovery.testing.torture.company import Company
from recovery.testing.torture.places import Places, throw_away
from recovery.testing.torture.plan import MAX_HOPS, OWN_EFFECTS, Plan, Rates
from recovery.testing.torture.rehearsal import rehearse
from recovery.testing.torture.run import Outcome, Wish
from recovery.testing.torture.scheduler import TICK_SECONDS, Scheduler
from recovery.testing.torture.tally import Tally
from tests.failover.servers import ASYNCHRONOUS, Pair

RATES = Rates(kills=0.4, stops=0.3, cuts=0.0, terminations=0.0, crashes=0.0, full_disks=0.0)
"""What goes wrong beside the servers: actors are killed, and frozen past their leases. Besides, most of them end by
their own hand at one of their commits, as in every torture."""
SECONDS_BETWEEN = 3.0
HELD_BACK_SECONDS = 0.5
ACKNOWLEDGED_ALONE = 20
"""So many messages a primary acknowledges by itself, where it can, before it is killed."""


@dataclass(frozen=True)
class Round:
    """One failover, in seconds since the epoch by the host's clock.

    `held_back` says that the standby was cut off before. Then: when the primary was killed, when the other one took
    writes, and when the killed one followed it again.
    """

    number: int
    held_back: bool
    killed: float
    promoted: float
    following: float


class Rounds(Scheduler):
    """Runs a company while one primary after the other is killed; afterwards the torture's own drain."""

    def __init__(self, company: Company, places: Places, pair: Pair, progress: Callable[[str], object]) -> None:
        super().__init__(company, places, RATES, None, progress)
        self._pair = pair
        self.done: list[Round] = []

    def fail_over(self, count: int, *, held_back: Callable[[int], bool]) -> None:
        """So many rounds, each after some seconds of load."""
        for actor in self._company.actors:
            self._company.start(actor)
        for number in range(1, count + 1):
            self._load(time.time() + SECONDS_BETWEEN)
            self._round(number, held_back=held_back(number))

    def _load(self, until: float) -> None:
        """Faults of the actors until that time, and as long as a failover lasts."""
        while time.time() < until or self._is_helped("crash"):
            self._look_after(time.time(), "under faults")
            for fault in self._timetable.due(time.time() - self._company.plan.began):
                self._faults[fault.kind](fault)
            time.sleep(TICK_SECONDS)

    def _round(self, number: int, *, held_back: bool) -> None:
        tally = self._company.plan.tally
        path = self._company.plan.folder / f"round-{number}.json"
        self._help("crash", lambda: failed_over(self._pair, number, path, tally, held_back=held_back))
        self._load(time.time())
        self.done.append(Round(**json.loads(path.read_text())))
        self._pair.swap()


def failed_over(pair: Pair, number: int, path: Path, tally: Tally, *, held_back: bool) -> bool:
    """Kill the primary, promote the standby, and let the killed one follow it; in a process of its own.

    When all that was is written down. Parts are not yet changed in `pair` when it ends: what this process notes there
    is gone with it.
    """
    try:
        if held_back:
            pair.hold_back()
            _go_on_alone(pair, tally)
        killed = pair.primary.kill()
        pair.standby.promote()
        promoted = time.time()
        pair.rejoin()
        found = Round(number, held_back, killed, promoted, time.time())
        path.write_text(json.dumps(dataclasses.asdict(found)))
    except Exception:
        path.with_suffix(".broken").write_text(traceback.format_exc())
        raise
    return True


def _go_on_alone(pair: Pair, tally: Tally) -> None:
    """Let the load go on without a standby: where nobody waits for it, until something was acknowledged."""
    enough = tally.total("acknowledged") + ACKNOWLEDGED_ALONE
    time.sleep(HELD_BACK_SECONDS)
    while pair.mode == ASYNCHRONOUS and tally.total("acknowledged") < enough:
        time.sleep(TICK_SECONDS)


def run(
    pair: Pair,
    count: int,
    folder: Path,
    progress: Callable[[str], object],
    *,
    seed: int,
    held_back: Callable[[int], bool] = lambda number: number % 2 == 0,
) -> tuple[Outcome, list[Round]]:
    """Fail over so many times under load, let everything come to its end, and judge what is there then.

    `held_back` says in which rounds the standby is cut off before the primary is killed, so that COMMITs wait for it.
    """
    wish = Wish(pair.url, count * SECONDS_BETWEEN, seed, folder, RATES)
    (folder / "histories").mkdir(mode=0o700)
    with throw_away(pair.url) as places, socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        listening.setblocking(False)  # noqa: FBT003 - the standard library's signature
        with snapshot(places.queue_url) as seen:
            clock_ahead = seen.now() - time.time()
        company = Company(_plan(wish, places, listening), listening)
        rehearse(company.plan, places)
        rounds = Rounds(company, places, pair, progress)
        try:
            rounds.fail_over(count, held_back=held_back)
            drained = rounds.drain()
        finally:
            company.end()
            for helper in rounds._helpers:
                os.waitpid(helper, 0)
        operations = read_histories(in_folder(company.plan.histories))
        queue, receiver = Place(places.queue_url), Place(places.receiver_url)
        verdict = check(operations, queue, receiver, own_effects=OWN_EFFECTS, max_hops=MAX_HOPS, drained=drained)
        events, tally = tuple(company.events), company.plan.tally
        facts = (events, tally.total("cuts"), tally.total("jumps"), verdict, clock_ahead, ())
        return Outcome(wish, "postgresql", company.plan.began, drained, *facts), rounds.done


def _plan(wish: Wish, places: Places, listening: socket.socket) -> Plan:
    return Plan(
        url=places.queue_url,
        direct_url=places.queue_url,
        receiver_url=places.receiver_url,
        folder=wish.folder,
        seconds=wish.seconds,
        seed=wish.seed,
        began=time.time(),
        receiver_port=int(listening.getsockname()[1]),
        cuts_by_actors=0.0,
        clocks_jump=True,
        tally=Tally(),
    )
