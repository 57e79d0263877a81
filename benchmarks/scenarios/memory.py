"""Whether a worker grows: its memory after many tasks over its memory after a few."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from multiprocessing.connection import Connection
from typing import Any

from ..bench import Bench, Point
from ..counting import finish_all
from ..filling import Fill, fill
from ..measuring import ratio, rounded
from ..targets import Place

BATCH = 100
FEW = 1_000
PATIENCE_SECONDS = 3600.0
UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""In what getrusage counts."""


def run(bench: Bench) -> list[Point]:
    """One point: a worker's greatest memory so far, after 1,000 tasks and after all."""
    rows = max(bench.options.rows, 2 * FEW)
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    with bench.target.fresh() as place:
        bench.step(f"filling {rows:,} tasks")
        fill(place, Fill("pending", rows, bench.salt("memory"), bench.options.payload_bytes))
        bench.step(f"draining {rows:,} tasks")
        process = context.Process(target=_drain, args=(place, theirs), daemon=True)
        process.start()
        theirs.close()
        few, many, tasks = _answer(ours)
        process.join(PATIENCE_SECONDS)
    facts = {"rows": rows, "tasks": tasks, "few": FEW, "workers": 1, "batch": BATCH}
    return [bench.point("memory", **facts, few_bytes=few, many_bytes=many, over_few=rounded(ratio(many, few), 3))]


def _answer(pipe: Connection) -> tuple[int, int, int]:
    if not pipe.poll(PATIENCE_SECONDS):
        raise TimeoutError("the worker did not drain the queue.")
    few, many, tasks = pipe.recv()
    return few, many, tasks


def _drain(place: Place, pipe: Connection) -> None:
    few, tasks = 0, 0
    with place.queue() as queue, queue.session() as session:
        door: Any = session
        while claims := door.claim_batch("bench", BATCH):
            finish_all(door, claims)
            tasks += len(claims)
            if not few and tasks >= FEW:
                few = _bytes()
        pipe.send((few, _bytes(), tasks))


def _bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT_BYTES
