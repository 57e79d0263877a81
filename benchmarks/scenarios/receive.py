"""Receiving: one message at a time, a batch with a commit for each, and a batch with one commit for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from recovery import Envelope

from ..bench import Bench, Point
from ..counting import tape_of
from ..filling import envelope
from ..measuring import median, ratio, rounded, spread_ms
from ..targets import AUTH

BATCH = 100
Way = Callable[[Any, Sequence[Envelope]], Any]

WAYS: dict[str, Way] = {
    "receive": lambda session, some: [session.receive(one, AUTH) for one in some],
    "receive_batch": lambda session, some: session.receive_batch(some, AUTH),
    "receive_all": lambda session, some: session.receive_all(some, AUTH),
}
TAPED = {"receive": 20, "receive_batch": 20, "receive_all": BATCH}
UNIT = {"receive": 1, "receive_batch": BATCH, "receive_all": BATCH}


def run(bench: Bench) -> list[Point]:
    """One point for each way, without duplicates and with every second message a duplicate; rounds interleaved."""
    rounds: dict[tuple[str, float], list[tuple[float, list[float]]]] = {}
    wanted = [(way, share) for way in WAYS for share in (0.0, 0.5)]
    for number in range(bench.options.rounds):
        for way, share in wanted[number % len(wanted) :] + wanted[: number % len(wanted)]:
            bench.step(f"{way}, {share:.0%} duplicates, round {number + 1} of {bench.options.rounds}")
            rounds.setdefault((way, share), []).append(_once(bench, way, share, number))
    return [_point(bench, way, share, rounds[way, share]) for way, share in wanted]


def _once(bench: Bench, way: str, share: float, number: int) -> tuple[float, list[float]]:
    """Messages per second, and how long each call took; duplicates must be told as such."""
    calls = max(1, bench.options.cycles // (1 if way == "receive" else 10))
    messages = _messages(bench, calls * UNIT[way], share, number)
    times, acks = [], []
    with bench.target.fresh() as place, place.queue() as queue, queue.session() as session:
        session.receive(envelope("warm-up"), AUTH)
        for at in range(0, len(messages), UNIT[way]):
            began = time.monotonic()
            acks += WAYS[way](session, messages[at : at + UNIT[way]])
            times.append(time.monotonic() - began)
    if sum(ack.duplicate for ack in acks) != len(messages) - len({one.message_id for one in messages}):
        raise RuntimeError("the queue did not tell duplicates from new messages.")
    return len(messages) / sum(times), times


def _messages(bench: Bench, count: int, share: float, number: int) -> list[Envelope]:
    """So many messages, of which a share repeats the one before."""
    step = round(1 / (1 - share))
    salt, payload_bytes = bench.salt("receive", number), bench.options.payload_bytes
    made = [envelope(f"{salt}{at}", payload_bytes) for at in range(-(-count // step))]
    return [made[at // step] for at in range(count)]


def _point(bench: Bench, way: str, share: float, found: list[tuple[float, list[float]]]) -> Point:
    with bench.target.fresh() as place:
        messages = _messages(bench, TAPED[way], share, 0)
        tape, _ = tape_of(place, lambda session: len(WAYS[way](session, messages)))
    times = [seconds for _, calls in found for seconds in calls]
    return bench.point(
        "receive",
        way=way,
        batch=UNIT[way],
        duplicate_share=share,
        rounds=len(found),
        messages_per_second=rounded(median(rate for rate, _ in found), 1),
        **spread_ms("call", times),
        statements_per_message=rounded(ratio(tape.statements, TAPED[way])),
        commits_per_message=rounded(ratio(tape.commits, TAPED[way])),
    )
