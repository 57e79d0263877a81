"""One actor of a company: sends, works or delivers until its input ends, and writes down all that it asks.

Run with one release or the other on the path; what the previous one does not have, no actor asks for. Arguments: the
role, the URL, the file of its history, and the name of the actor.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from recovery import AuthContext, Busy, Envelope, Fenced, Queue, Receiver, Unavailable
from recovery.schema import VERSION
from recovery.testing import recording
from recovery.testing.history import History
from recovery.testing.recording import RecordedQueue, RecordedReceiver

PREVIOUS: Final[bool] = str(VERSION) == "0001"
SETTINGS: Final[dict[str, Any]] = {
    "allowed_sources": {"agent-a"},
    "lease_seconds": 4.0,
    "delivery_lease_seconds": 4.0,
    "backoff": 0.05,
    "delivery_backoff": 0.05,
    "delivery_attempts": 9,
}
PAUSE_SECONDS: Final = 0.01


class WithoutQueues:
    """A queue of the previous release, called as today's: it knows of no named queues."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def claim(self, owner: str, _queues: object) -> Any:
        return self._queue.claim(owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Actor:
    """What all roles have."""

    def __init__(self, name: str, queue: RecordedQueue, receiver: RecordedReceiver) -> None:
        self.name, self.queue, self.receiver = name, queue, receiver
        self.chance = random.Random(name)
        self.sent = 0

    def send(self) -> bool:
        """Send a message, and one in five times one that was sent before."""
        again = self.sent and self.chance.random() < 0.2
        self.sent += not again
        number = self.chance.randint(1, self.sent) if again else self.sent
        message = Envelope(f"{self.name}-{number}", "agent-a", {"n": number}, deadline=4e9, max_attempts=9)
        self.queue.receive(message, AuthContext("agent-a"))
        time.sleep(PAUSE_SECONDS)
        return True

    def work(self) -> bool:
        """Take a task, and do with it what may become of one; now and then it is left to its lease."""
        held = self.queue.claim(self.name)
        if not held:
            return False
        (claim,), share = held, self.chance.random()
        if share < 0.1:
            self.queue.fail(claim, "not yet")
        elif share < 0.2:
            self.queue.release(claim)
        elif share < 0.25:
            self.queue.fail(claim, "never", retryable=False)
        elif share > 0.28:
            self.finish(claim, share)
        return True

    def finish(self, claim: Any, share: float) -> None:
        """Finish a task, some with a longer lease, some with the next one at once, where that can be had."""
        if share < 0.4:
            claim = self.queue.renew(claim)
        following = None
        if share < 0.7 or PREVIOUS:
            self.queue.finish(claim, claim.payload)
        else:
            following = self.queue.finish_and_claim(claim, claim.payload)
        if following is not None:
            self.queue.finish(following, following.payload)

    def deliver(self) -> bool:
        """Deliver a reply; one in ten times its answer is lost."""
        held = self.queue.claim_reply(self.name)
        for delivery in held:
            self.receiver.accept(delivery.reply_id, delivery.payload)
            self.queue.settle(delivery, delivered=self.chance.random() > 0.1)
        return bool(held)


def main(role: str, url: str, file: str, name: str) -> None:
    """Act until the input ends."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    if PREVIOUS:  # Fields of an envelope that it does not have are no part of its fingerprint.
        recording.LATER_FIELDS.clear()
    with (
        History(Path(file), name) as history,
        Queue.open(url, **SETTINGS) as queue,
        Receiver.open(url) as receiver,
    ):
        recorded = RecordedQueue(WithoutQueues(queue) if PREVIOUS else queue, history)
        step = getattr(Actor(name, recorded, RecordedReceiver(receiver, history)), role)
        while not over.is_set():
            try:
                found = step()
            except (Busy, Fenced, Unavailable):  # Each is in the history.
                found = False
            if not found:
                over.wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
