"""One torture from beginning to end: places, actors, faults, drain, verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recovery.testing.checker import Place, Verdict, check
from recovery.testing.history import in_folder, read_histories
from recovery.testing.reading import snapshot
from recovery.testing.torture import clocks
from recovery.testing.torture.company import Company, Event, forked
from recovery.testing.torture.container import contained
from recovery.testing.torture.places import Places, address, through, throw_away
from recovery.testing.torture.plan import MAX_HOPS, OWN_EFFECTS, Plan, Rates
from recovery.testing.torture.proxy import Cutter, Proxy, serve
from recovery.testing.torture.rehearsal import rehearse
from recovery.testing.torture.scheduler import Breakable, Scheduler
from recovery.testing.torture.server import embedded
from recovery.testing.torture.tally import ROWS_MAX, Tally

PROXY_ROW: Final = ROWS_MAX - 1


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for. `folder` is where the histories go; `rates` are how many faults of each kind in a second."""

    url: str | None
    seconds: float
    seed: int
    folder: Path
    rates: Rates = field(default_factory=Rates)
    server: Breakable | None = None
    full_disk: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that a report is made of. `clock_ahead` is the database's clock over the host's, in seconds."""

    wish: Wish
    backend: str
    began: float
    drained: bool
    events: tuple[Event, ...]
    cuts: int
    jumps: int
    verdict: Verdict
    clock_ahead: float
    left_out: tuple[str, ...]


def torture(wish: Wish, progress: Callable[[str], object]) -> Outcome:
    """Run one. Raises an error of the contract where the database cannot be used.

    `progress` is told a line each second.
    """
    (wish.folder / "histories").mkdir(mode=0o700)
    with (
        throw_away(wish.url, full_disk=wish.full_disk) as places,
        socket.create_server(("127.0.0.1", 0), backlog=128) as listening,
    ):
        listening.setblocking(False)  # noqa: FBT003 - the standard library's signature
        tally = Tally()
        with snapshot(places.queue_url) as seen:
            clock_ahead = seen.now() - time.time()
        with _cutting(places, wish, tally) as (queue_url, receiver_url, by_actors, left_out):
            plan = Plan(
                url=queue_url,
                direct_url=places.queue_url,
                receiver_url=receiver_url,
                folder=wish.folder,
                seconds=wish.seconds,
                seed=wish.seed,
                began=time.time(),
                receiver_port=int(listening.getsockname()[1]),
                cuts_by_actors=by_actors,
                clocks_jump=places.is_server,
                tally=tally,
            )
            rehearse(plan, places)
            company = Company(dataclasses.replace(plan, began=time.time()), listening)
            scheduler = Scheduler(company, places, _possible(wish, places), wish.server, progress)
            try:
                scheduler.run()
                drained = scheduler.drain()
            finally:
                company.end()
        progress("checking")
        plan = company.plan
        verdict = _verdict(places, plan, drained=drained)
        events, cuts, jumps = tuple(company.events), tally.total("cuts"), tally.total("jumps")
        backend = "postgresql" if places.is_server else "sqlite"
        return Outcome(wish, backend, plan.began, drained, events, cuts, jumps, verdict, clock_ahead, left_out)


def _verdict(places: Places, plan: Plan, *, drained: bool) -> Verdict:
    operations = read_histories(in_folder(plan.histories))
    queue, receiver = Place(places.queue_url), Place(places.receiver_url)
    return check(operations, queue, receiver, own_effects=OWN_EFFECTS, max_hops=MAX_HOPS, drained=drained)


def _possible(wish: Wish, places: Places) -> Rates:
    """The rates, without the faults that cannot be had here."""
    rates = wish.rates
    return Rates(
        kills=rates.kills,
        stops=rates.stops,
        cuts=rates.cuts,
        terminations=rates.terminations if places.is_server else 0.0,
        crashes=rates.crashes if wish.server is not None else 0.0,
        full_disks=rates.full_disks if places.small_disk is not None else 0.0,
    )


@contextlib.contextmanager
def _cutting(places: Places, wish: Wish, tally: Tally) -> Iterator[tuple[str, str, float, tuple[str, ...]]]:
    """Where actors connect, how many answers they lose themselves in a second, and what was left out."""
    upstream = address(places.queue_url) if places.is_server else None
    left_out = []
    if not places.is_server:
        left_out.append("clock jumps: on SQLite the host's clock is the database's")
    elif not clocks.is_faked():
        left_out.append(clocks.PYTHON_ALONE)
    if places.small_disk is None:
        left_out.append("a full disk: that needs root and SQLite, and is asked for with --full-disk")
    if places.is_server and wish.server is None:
        left_out.append("stopping the server: it is not ours (--embedded and --container start one that is)")
    if upstream is None:
        if places.is_server:
            left_out.append("the proxy: the server wants encryption; the actors lose the answers themselves")
        yield places.queue_url, places.receiver_url, wish.rates.cuts, tuple(left_out)
        return
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = int(listening.getsockname()[1])
        cutter = Cutter(random.Random(f"{wish.seed}:proxy"), wish.rates.cuts)
        proxy = forked(lambda: serve(Proxy(upstream, cutter, tally, PROXY_ROW), listening))
    try:
        yield through(places.queue_url, port), through(places.receiver_url, port), 0.0, tuple(left_out)
    finally:
        os.kill(proxy, signal.SIGKILL)
        os.waitpid(proxy, 0)


@contextlib.contextmanager
def server_of_our_own(*, wanted: bool, image: str | None = None) -> Iterator[Breakable | None]:
    """A server that may be broken in the middle of everything, where one is wanted: here, or in a container."""
    if image is not None:
        with contained(image) as container:
            yield container
    elif wanted:
        with embedded() as server:
            yield server
    else:
        yield None


def workspace(out: Path | None) -> Path:
    """A new folder for the histories: in the folder of the report, else a temporary one."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="torture-" if out else "recovery-torture-", dir=out))
