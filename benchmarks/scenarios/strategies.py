"""Ways to claim, side by side on the same table, as small as they can be written: why the library does what it does.

Each is a few statements through the driver alone. None writes a journal or a reply, and none settles what is due, so
the figures compare the strategies with each other and not with the library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from recovery.backend.base import BUSY_SECONDS
from recovery.backend.turns import Turns

from ..bench import Bench, Point
from ..filling import Fill, fill
from ..measuring import Spell, median, rounded
from ..targets import Place
from ..workers import DRY_AFTER, LEAD_SECONDS, Clock, Kind, Log, Plan
from ..workers import run as run_workers
from .contention import measured

HOLD: Final = (
    "state = 'running', owner = {owner}, last_owner = {owner}, lease_until = {now} + 3600, "
    "fence = fence + 1, attempts = attempts + 1"
)
DONE: Final = "state = 'done', owner = NULL, lease_until = NULL, ended_at = {now}, result = '{{}}'"
DUE: Final = "state = 'pending' AND queue = 'default' AND priority = 0 AND available_at <= {now}"
ORDER: Final = "ORDER BY available_at, arrival"
PG_NOW: Final = "(SELECT extract(epoch FROM clock_timestamp())::float8)"
SUPPLY_PER_SECOND: Final = 6_000
POLL_SECONDS: Final = 0.0005
ADVISORY_LOOK: Final = 64
SQLITE_BUSY: Final = 5


@dataclass(slots=True)
class Raw:
    """A driver's connection in autocommit, and the table."""

    driver: Any
    table: str
    pooled: Any
    engine: Any
    file: int | None = None
    turns: Turns | None = None

    def run(self, text: str, **values: Any) -> list[Any]:
        """Execute one statement and return its rows."""
        cursor = self.driver.cursor()
        cursor.execute(text, values or None) if values else cursor.execute(text)
        rows = cursor.fetchall() if cursor.description is not None else []
        return list(rows)

    @contextlib.contextmanager
    def transaction(self, begin: str = "BEGIN") -> Iterator[None]:
        """A transaction around some statements."""
        self.run(begin)
        try:
            yield
        except BaseException:
            self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    def close(self) -> None:
        """Give everything back."""
        if self.file is not None:
            os.close(self.file)
        if self.turns is not None:
            self.turns.close()
        self.pooled.detach()
        self.pooled.close()
        self.engine.dispose()


class PostgresStrategy:
    """Claims with one statement; a subclass says how the row is found."""

    pick = ""

    def claim(self, raw: Raw, owner: str) -> str | None:
        pick = self.pick.format(table=raw.table, due=DUE.format(now=PG_NOW), order=ORDER)
        hold = HOLD.format(owner="%(owner)s", now=PG_NOW)
        text = (
            f"WITH picked AS MATERIALIZED ({pick}) UPDATE {raw.table} SET {hold} "
            f"WHERE task_id = (SELECT task_id FROM picked) AND state = 'pending' RETURNING task_id"
        )
        rows = raw.run(text, owner=owner)
        return str(rows[0][0]) if rows else None

    def finish(self, raw: Raw, task_id: str) -> None:
        raw.run(f"UPDATE {raw.table} SET {DONE.format(now=PG_NOW)} WHERE task_id = %(task_id)s", task_id=task_id)


class SkipLocked(PostgresStrategy):
    """Lock the first row that nobody else has locked."""

    pick = "SELECT task_id FROM {table} WHERE {due} {order} LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED"


class ForUpdate(PostgresStrategy):
    """Lock the first row, waiting for whoever has it; whoever waited finds it taken and has to ask again."""

    pick = "SELECT task_id FROM {table} WHERE {due} {order} LIMIT 1 FOR NO KEY UPDATE"


class CompareAndSet(PostgresStrategy):
    """Look at the first row without a lock, then take it if nobody else did in between."""

    def claim(self, raw: Raw, owner: str) -> str | None:
        due = DUE.format(now=PG_NOW)
        rows = raw.run(f"SELECT task_id, fence FROM {raw.table} WHERE {due} {ORDER} LIMIT 1")
        if not rows:
            return None
        hold = HOLD.format(owner="%(owner)s", now=PG_NOW)
        mine = "task_id = %(task_id)s AND fence = %(fence)s AND state = 'pending'"
        won = raw.run(
            f"UPDATE {raw.table} SET {hold} WHERE {mine} RETURNING task_id",
            owner=owner, task_id=rows[0][0], fence=rows[0][1],
        )  # fmt: skip
        return str(won[0][0]) if won else None


class AdvisoryLock(PostgresStrategy):
    """Take the first row, of the first few, whose number can be locked; the lock is no part of the row."""

    pick = (
        "SELECT task_id FROM (SELECT task_id, arrival FROM {table} WHERE {due} {order} LIMIT "
        f"{ADVISORY_LOOK}"
        ") few WHERE pg_try_advisory_xact_lock(arrival) LIMIT 1"
    )


class SqliteStrategy:
    """Claims in a transaction that has the write lock from its beginning, and waits for it as SQLite does: asleep."""

    begin = "BEGIN IMMEDIATE"

    def claim(self, raw: Raw, owner: str) -> str | None:
        with self.turn(raw), raw.transaction(self.begin):
            now = time.time()
            first = raw.run(f"SELECT task_id FROM {raw.table} WHERE {DUE.format(now=':now')} {ORDER} LIMIT 1", now=now)
            if not first:
                return None
            hold = HOLD.format(owner=":owner", now=":now")
            raw.run(f"UPDATE {raw.table} SET {hold} WHERE task_id = :id", owner=owner, now=now, id=first[0][0])
        return str(first[0][0])

    def finish(self, raw: Raw, task_id: str) -> None:
        with self.turn(raw), raw.transaction("BEGIN IMMEDIATE"):
            done = DONE.format(now=":now")
            raw.run(f"UPDATE {raw.table} SET {done} WHERE task_id = :id", now=time.time(), id=task_id)

    @contextlib.contextmanager
    def turn(self, raw: Raw) -> Iterator[None]:
        """Nothing to wait in line for."""
        yield


class PolledLock(SqliteStrategy):
    """The same, but whoever wants to write first takes a lock on a file beside the database, asking every 0.5 ms."""

    @contextlib.contextmanager
    def turn(self, raw: Raw) -> Iterator[None]:
        assert raw.file is not None
        while True:
            try:
                fcntl.flock(raw.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(raw.file, fcntl.LOCK_UN)


class BlockingLock(PolledLock):
    """The same with a lock that is waited for in the kernel. It has no bound, so a library cannot use it as it is."""

    @contextlib.contextmanager
    def turn(self, raw: Raw) -> Iterator[None]:
        assert raw.file is not None
        fcntl.flock(raw.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(raw.file, fcntl.LOCK_UN)


class OurQueue(SqliteStrategy):
    """The same with the library's own line: whoever came first goes first, with a bound."""

    @contextlib.contextmanager
    def turn(self, raw: Raw) -> Iterator[None]:
        assert raw.turns is not None
        raw.turns.take(BUSY_SECONDS)
        try:
            yield
        finally:
            raw.turns.drop()


class ReadThenWrite(SqliteStrategy):
    """A plain BEGIN that reads first and asks for the write lock later, and fails where somebody wrote in between."""

    begin = "BEGIN"


STRATEGIES: dict[str, dict[str, Any]] = {
    "postgresql": {
        "SKIP LOCKED": SkipLocked(),
        "FOR UPDATE": ForUpdate(),
        "compare and set": CompareAndSet(),
        "advisory lock": AdvisoryLock(),
    },
    "sqlite": {
        "BEGIN IMMEDIATE, busy wait": SqliteStrategy(),
        "our writer queue": OurQueue(),
        "flock, polled": PolledLock(),
        "flock, blocking": BlockingLock(),
        "BEGIN, read then write": ReadThenWrite(),
    },
}
LIBRARY: dict[str, dict[str, dict[str, str]]] = {
    "postgresql": {"the library": {}},
    "sqlite": {"the library": {}, "the library, turns=off": {"turns": "off"}},
}
"""The library itself beside them, journal, reply and all: on SQLite with and without its writer queue."""


@contextlib.contextmanager
def raw_on(place: Place) -> Iterator[Raw]:
    """A held driver's connection, set up as the library sets up its own."""
    raw = _opened(place)
    try:
        yield raw
    finally:
        raw.close()


def _opened(place: Place) -> Raw:
    engine = place.engine()
    pooled = engine.raw_connection()
    driver: Any = pooled.driver_connection
    raw = Raw(driver, place.tables.tasks.name, pooled, engine)
    if place.backend == "postgresql":
        driver.autocommit = True
    else:
        raw.file = os.open(f"{engine.url.database}-flock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        raw.turns = Turns(f"{engine.url.database}-strategy")
    return raw


def _loop(plan: Plan, raw: Raw, owner: str, clock: Clock, log: Log) -> None:
    """Claim and finish; an empty answer is asked again, as a worker would, and its time belongs to the claim."""
    strategy = STRATEGIES[plan.place.backend][plan.detail]
    began, empty = time.monotonic(), 0
    while clock.on():
        try:
            task_id = strategy.claim(raw, owner)
            held = time.monotonic()
            if task_id is None:
                log.empty += 1
                empty += 1
                if empty > DRY_AFTER and not _left(raw):
                    log.dry_at = began
                    return
                continue
            strategy.finish(raw, task_id)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != SQLITE_BUSY:
                raise
            log.busy += 1
            continue
        log.done.append(task_id)
        log.spells.append(Spell(began, held, time.monotonic(), 1))
        began, empty = time.monotonic(), 0


def _left(raw: Raw) -> bool:
    return bool(raw.run(f"SELECT 1 FROM {raw.table} WHERE state = 'pending' LIMIT 1"))


KIND = Kind(lambda _plan, _log: None, lambda plan, _shared: _opened(plan.place), _loop)


def run(bench: Bench) -> list[Point]:
    """One point for each strategy and number of processes: the medians of interleaved rounds."""
    points = []
    for processes in bench.options.processes:
        points += _together(bench, processes)
    return points


def _together(bench: Bench, processes: int) -> list[Point]:
    names = [*STRATEGIES[bench.target.backend], *LIBRARY[bench.target.backend]]
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(bench.options.rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned:
            bench.step(f"{name}, {processes} processes, round {number + 1} of {bench.options.rounds}")
            rounds[name].append(_once(bench, name, processes, number))
    return [
        bench.point("strategies", strategy=name, workers=processes, batch=1, rounds=len(found), **_medians(found))
        for name, found in rounds.items()
    ]


def _once(bench: Bench, name: str, processes: int, number: int) -> dict[str, Any]:
    seconds = bench.options.seconds
    with bench.target.fresh() as place:
        fill(place, Fill("pending", int(SUPPLY_PER_SECOND * (seconds + LEAD_SECONDS)), bench.salt(number)))
        found = run_workers([_plan(place, name, seconds, at) for at in range(processes)])
    told = [task_id for log in found.logs for task_id in log.done]
    claims = len(told) or 1
    tries = round((claims + sum(log.empty + log.busy for log in found.logs)) / claims, 2)
    return {**measured(found), "tries_per_claim": tries, "duplicates": len(told) - len(set(told))}


def _plan(place: Place, name: str, seconds: float, number: int) -> Plan:
    query = LIBRARY[place.backend].get(name)
    if query is None:
        return Plan(place, seconds, number=number, work="strategy", detail=name)
    url = sa.make_url(place.url).update_query_dict(query).render_as_string(hide_password=False)
    return Plan(replace(place, url=url), seconds, number=number)


def _medians(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over the rounds; duplicates are added up."""
    medians: dict[str, Any] = {
        name: rounded(median(one[name] for one in found if one[name] is not None))
        for name, value in found[0].items()
        if isinstance(value, int | float) and name != "duplicates"
    }
    return medians | {"duplicates": sum(one["duplicates"] for one in found)}
