"""Statements and commits per task, counted on what the library sends for the same work, apart from any timing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery import Queue, open_engine

from .filling import RESULT, Fill, fill
from .probes import Tape, taped
from .targets import Place, Target

CYCLES = 10


def counted(target: Target, work: Callable[[Any], int], fills: int = 0) -> dict[str, float]:
    """Run `work(session)` on a place of its own; it returns how many tasks that were. The counts are per task."""
    with target.fresh() as place:
        if fills:
            fill(place, Fill("pending", fills, "counted"))
        tape, tasks = tape_of(place, work)
    return {
        "statements_per_task": round(tape.statements / tasks, 3),
        "messages_per_task": round(tape.messages / tasks, 3),
        "commits_per_task": round(tape.commits / tasks, 3),
    }


def tape_of(place: Place, work: Callable[[Any], int]) -> tuple[Tape, int]:
    """What `work(session)` sent, after one warm-up that is not on the tape."""
    engine = open_engine(place.url)
    try:
        queue = Queue(engine, **place.settings())
        with taped(engine) as tape, queue.session() as session:
            session.connection()
            tape.clear()
            tasks = work(session)
            end = tape.kept()
    finally:
        engine.dispose()
    return end, tasks


def claim_and_finish(batch: int, cycles: int = CYCLES) -> Callable[[Any], int]:
    """Claims and finishes, `cycles` times."""

    def work(session: Any) -> int:
        for _ in range(cycles):
            cycle(session, batch)
        return batch * cycles

    return work


def cycle(session: Any, batch: int) -> None:
    """One claim and its finish: of one task, or of a batch."""
    if batch == 1:
        session.finish(session.claim("bench"), RESULT)
        return
    finish_all(session, session.claim_batch("bench", batch))


def finish_all(session: Any, claims: Any) -> None:
    """Finish a batch with one commit."""
    for verdict in session.finish_batch([(claim, RESULT) for claim in claims]):
        if not verdict.ok:
            raise verdict.error
