"""Many workers, one queue: throughput, latency, fairness, and that no task was done twice or lost."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise
from typing import Any

import sqlalchemy as sa

from ..bench import Bench, Point
from ..counting import claim_and_finish, counted
from ..filling import Fill, fill
from ..measuring import Spell, histogram, ratio, rounded, spread_ms
from ..targets import Place
from ..workers import LEAD_SECONDS, Plan, Run
from ..workers import run as run_workers

FIRST_RATES = {1: 3_000, 10: 12_000, 100: 20_000}
"""Tasks per second to be ready for, by batch, before anything was measured."""
ROWS_MAX = 1_500_000


def run(bench: Bench) -> list[Point]:
    """One point for each batch size and number of processes."""
    points = []
    for batch in bench.options.batch:
        counts = counts_for(bench, batch)
        rate = first_rate(batch)
        for processes in bench.options.processes:
            points.append(point(bench, processes, batch, rate, counts))
            rate = max(rate, 2 * (points[-1]["tasks_per_second"] or 0))
    return points


def first_rate(batch: int) -> float:
    """How many tasks per second to be ready for."""
    return float(next(rate for size, rate in sorted(FIRST_RATES.items(), reverse=True) if batch >= size))


def counts_for(bench: Bench, batch: int) -> dict[str, float]:
    """Statements and commits per task, for one claim and finish of this size."""
    bench.step(f"counting statements, batch {batch}")
    return counted(bench.target, claim_and_finish(batch), batch * 20)


def point(bench: Bench, processes: int, batch: int, rate: float, counts: dict[str, float]) -> Point:
    """Measure one number of processes with one batch size."""
    options = bench.options
    supply = min(ROWS_MAX, int((options.seconds + LEAD_SECONDS) * rate) + processes * options.threads * batch * 4)
    with bench.target.fresh() as place:
        bench.step(f"filling {supply:,} tasks")
        fill(place, Fill("pending", supply, bench.salt(processes, batch), options.payload_bytes))
        bench.step(f"{processes} processes, batch {batch}, {options.seconds:g} s")
        found = run_workers(
            [Plan(place, options.seconds, batch, options.threads, number) for number in range(processes)]
        )
        truth = verified(place, found, supply)
    facts = {"workers": processes * options.threads, "processes": processes, "batch": batch}
    return bench.point("contention", **facts, **measured(found), **truth, **counts)


def measured(found: Run) -> dict[str, Any]:
    """What a run says about speed and fairness."""
    by_worker = found.spells()
    spells = list(chain.from_iterable(by_worker))
    work = [sum(spell.tasks for spell in one) for one in by_worker]
    claims = found.waits()
    return {
        "seconds": rounded(found.seconds, 3),
        "tasks": sum(work),
        "tasks_per_second": rounded(ratio(sum(work), found.seconds), 1),
        **spread_ms("claim", claims),
        **spread_ms("claim_finish", [spell.ended - spell.began for spell in spells]),
        "longest_wait_ms": _longest_wait(by_worker, found),
        "least_over_most": rounded(ratio(min(work), max(work))),
        "work_per_worker": work,
        "empty_claims": sum(log.empty for log in found.logs),
        "retries": sum(log.retries for log in found.logs),
        "busy_errors": sum(log.busy for log in found.logs),
        "claim_histogram_ms": histogram(claims),
    }


def _longest_wait(by_worker: list[list[Spell]], found: Run) -> float:
    """The longest time that any worker had nothing finished, the window's edges counted too."""
    longest = 0.0
    for one in by_worker:
        edges = [found.start, *(spell.ended for spell in one), found.end]
        longest = max([longest, *(after - before for before, after in pairwise(edges))])
    return round(longest * 1000, 2)


def verified(place: Place, found: Run, supply: int) -> dict[str, int]:
    """What the tables say afterwards against what the workers were told.

    A task that two finishes were acknowledged for is a duplicate; one that is gone, that is not done although a
    worker was told so, or that has not exactly one reply, is lost.
    """
    told = Counter(chain.from_iterable(log.done for log in found.logs))
    tasks, outbox = place.tables.tasks, place.tables.outbox
    engine = place.engine()
    try:
        with engine.connect() as connection:
            done = set(connection.execute(sa.select(tasks.c.task_id).where(tasks.c.state == "done")).scalars())
            replied = Counter(connection.execute(sa.select(outbox.c.task_id)).scalars())
            stored = connection.execute(sa.select(sa.func.count()).select_from(tasks)).scalar_one()
            fences = connection.execute(sa.select(sa.func.count()).where(tasks.c.fence > 1)).scalar_one()
    finally:
        engine.dispose()
    twice = sum(count - 1 for count in told.values()) + sum(max(0, count - 1) for count in replied.values())
    gone = supply - stored + len(told.keys() - done) + len(done - replied.keys()) + len(done - told.keys())
    return {"duplicates": twice + fences, "lost": gone, "fenced": sum(log.fenced for log in found.logs)}
