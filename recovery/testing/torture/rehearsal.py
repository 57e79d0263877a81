"""Every verb once, in the parent, before anybody is forked: statements are built once for all lives that follow."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any, Final

from recovery.errors import RecoveryError
from recovery.messages import Envelope
from recovery.queue import Queue
from recovery.receiver import Receiver
from recovery.testing.history import SUFFIX, History
from recovery.testing.recording import RecordedQueue, RecordedReceiver
from recovery.testing.torture import messages
from recovery.testing.torture.places import Places
from recovery.testing.torture.plan import PRINCIPAL, QUEUES, SETTINGS, Plan
from recovery.testing.torture.roles import apply_effect

NAME: Final = "rehearsal"
MESSAGES: Final = 8


def rehearse(plan: Plan, places: Places) -> None:
    """Do everything that actors do, written down as they do it, and close every connection."""
    with (
        Queue.open(places.queue_url, **SETTINGS) as queue,
        Receiver.open(places.receiver_url) as receiver,
        History(plan.histories / f"{NAME}{SUFFIX}", NAME) as history,
    ):
        _work(plan, RecordedQueue(queue, history))
        _deliver(RecordedQueue(queue, history), RecordedReceiver(receiver, history))
        queue.counts()
    gc.collect()
    gc.freeze()  # What is there now is never looked at again, so that forked processes share it.


def _work(plan: Plan, queue: RecordedQueue) -> None:
    for number in range(MESSAGES):
        queue.receive(Envelope(f"{NAME}-{number}", PRINCIPAL, {}, plan.began + messages.FAR_SECONDS), messages.AUTH)
    claims = [*queue.claim(NAME, 1, QUEUES), *queue.claim(NAME, 3, QUEUES), *queue.claim(NAME, 4, QUEUES)]
    ways: tuple[Callable[[Any], object], ...] = (
        queue.renew,
        lambda one: queue.fail(one, "later"),
        lambda one: queue.fail(one, "never", retryable=False),
        queue.release,
        lambda one: queue.cancel(one.task_id),
        lambda one: queue.finish(one, "done"),
        lambda one: queue.finish_and_claim(one, "done"),
        lambda one: queue.finish(one, {"done": "again"}),
    )
    for way, claim in zip(ways, claims, strict=False):
        with contextlib.suppress(RecoveryError):  # On a slow machine a lease may be over by now.
            way(claim)
    queue.reconcile()


def _deliver(queue: RecordedQueue, receiver: RecordedReceiver) -> None:
    for delivery in [*queue.claim_reply(NAME), *queue.claim_reply(NAME, 4)]:
        receiver.accept(delivery.reply_id, delivery.payload, apply_effect)
        receiver.accept(delivery.reply_id, delivery.payload, apply_effect)
        with contextlib.suppress(RecoveryError):
            queue.renew_reply(delivery)
            queue.settle(delivery, delivered=False, error="again")
    for delivery in queue.claim_reply(NAME):
        with contextlib.suppress(RecoveryError):
            queue.settle(delivery, delivered=True)
