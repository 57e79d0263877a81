"""Every verb that both releases have, on one queue that was opened before an upgrade: run with the previous release.

Argument: the URL of a migrated database. It prints `ready` when the first half is done, waits for a line, and prints
the answers of the second half as JSON: where an upgrade changes nothing for it, they are the same with and without.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

from recovery import AuthContext, Claim, Envelope, ManualClock, Queue, Receiver, RecoveryError
from recovery.canonical import task_id

AUTH = AuthContext("agent-a")
HELD = ("finished", "failed", "given up", "released", "renewed", "cancelled", "lost", "late")
LATER = ("waits", "stays")


def envelope(name: str, **changes: Any) -> Envelope:
    """A message, known by its name."""
    return Envelope(name, "agent-a", {"name": name}, **{"deadline": 2000.0, **changes})


def said(call: Callable[[], Any]) -> Any:
    """What was answered, or the class of what was raised."""
    try:
        answer = call()
    except RecoveryError as error:
        return type(error).__name__
    return dataclasses.asdict(answer) if hasattr(answer, "__dataclass_fields__") else answer


def before(queue: Queue) -> dict[str, Claim]:
    """Claims of each kind, and messages that wait."""
    for name in (*HELD, *LATER):
        queue.receive(envelope(name, deadline=1003.0 if name == "late" else 2000.0), AUTH)
    claims = [queue.claim("w") for _ in HELD]
    return {claim.payload["name"]: claim for claim in claims if claim is not None}


def after(queue: Queue, receiver: Receiver, held: dict[str, Claim], clock: ManualClock) -> list[Any]:
    """Every verb, on what was held before and on what is new."""
    answers = [
        said(lambda: queue.receive(envelope("waits"), AUTH)),
        said(lambda: queue.receive(envelope("new"), AUTH)),
        said(lambda: queue.receive(dataclasses.replace(envelope("new"), payload={"other": 1}), AUTH)),
        said(lambda: [ack.duplicate for ack in queue.receive_all([envelope("both"), envelope("new")], AUTH)]),
        said(lambda: queue.receive(envelope("over", deadline=999.0), AUTH)),
        said(lambda: queue.receive(envelope("far", hops=9), AUTH)),
        said(lambda: queue.finish(held["finished"], {"r": 1})),
        said(lambda: queue.finish(held["finished"], {"r": 1})),
        said(lambda: queue.finish(held["finished"], {"r": 2})),
        said(lambda: queue.fail(held["failed"], "no")),
        said(lambda: queue.fail(held["given up"], "never", retryable=False)),
        said(lambda: queue.release(held["released"])),
        said(lambda: queue.cancel(held["cancelled"].task_id)),
        said(lambda: queue.finish(held["cancelled"], 1)),
        said(lambda: queue.renew(held["renewed"])),
    ]
    clock.advance(4.0)
    answers += [said(lambda: queue.finish(held["late"], 1)), said(lambda: queue.renew(held["renewed"]))]
    clock.advance(7.0)
    answers += [said(lambda: queue.finish(held["lost"], 1)), said(lambda: queue.finish(held["renewed"], 1))]
    answers += [said(lambda: queue.claim("v")) for _ in range(4)]
    answers += [said(lambda: [claim.fence for claim in queue.claim_batch("v", 9)])]
    answers += [said(lambda: queue.dispatch_once(receiver)) for _ in range(3)]
    delivery = queue.claim_reply("d")
    assert delivery is not None
    answers += [said(lambda: queue.renew_reply(delivery)), said(lambda: queue.settle(delivery, delivered=False))]
    clock.advance(100.0)
    answers += [said(queue.reconcile), said(queue.counts)]
    names = (*HELD, *LATER, "new", "both", "over", "far")
    return answers + [said(lambda name=name: queue.task(task_id("agent-a", name))) for name in names]  # type: ignore[misc]


def main(url: str) -> None:
    """The first half, a line from whoever started this, and the second half."""
    clock = ManualClock(1000.0)
    settings: dict[str, Any] = {"clock": clock, "lease_seconds": 10.0, "delivery_lease_seconds": 10.0, "backoff": 2.0}
    with (
        Queue.open(url, allowed_sources={"agent-a"}, delivery_backoff=2.0, **settings) as queue,
        Receiver.open(url, clock=clock) as receiver,
    ):
        held = before(queue)
        print("ready", flush=True)  # noqa: T201 - the other side waits for it
        sys.stdin.readline()
        print(json.dumps(after(queue, receiver, held, clock), default=str))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
