from __future__ import annotations

import threading

import pytest

from recovery import Fenced
from tests.plugins.queues import AUTH, envelope
from tests.plugins.receivers import LostAck


def test_the_whole_way(queue, receiver, clock):
    """A message is received, its first worker is fenced, the second finishes, and a lost ACK has one effect."""
    ack = queue.receive(envelope(), AUTH)
    assert queue.receive(envelope(), AUTH).duplicate
    first = queue.claim("w")
    clock.advance(10)
    second = queue.claim("v")
    with pytest.raises(Fenced):
        queue.finish(first, "stale")
    queue.finish(second, "fresh")
    lossy = LostAck(receiver)
    assert "pending" == queue.dispatch_once(lossy).state
    clock.advance(2)
    done = queue.dispatch_once(lossy)
    assert ("sent", True, 1) == (done.state, done.duplicate, receiver.effect_count())
    assert '"fresh"' == queue.task(ack.task_id).result
    assert "nothing: all four stages are over" == queue.explain(ack.task_id).next


def test_two_threads_never_get_the_same_task(queue):
    """Two threads that claim at the same time get every task between them, and none twice."""
    wanted = {queue.receive(envelope(f"m-{n}"), AUTH).task_id for n in range(40)}
    barrier = threading.Barrier(2)
    got: dict[str, list[str]] = {"w": [], "v": []}

    def claim_all(owner: str) -> None:
        barrier.wait(timeout=30)
        while (claim := queue.claim(owner)) is not None:
            got[owner].append(claim.task_id)

    threads = [threading.Thread(target=claim_all, args=(owner,)) for owner in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    everything = got["w"] + got["v"]
    assert (40, wanted) == (len(everything), set(everything))


def test_cancel_and_expiry(queue, clock):
    """A cancelled task and an expired one each have their one reply."""
    queue.cancel(queue.receive(envelope("a"), AUTH).task_id)
    queue.receive(envelope("b", deadline=1005.0), AUTH)
    clock.advance(5)
    assert 1 == queue.reconcile().tasks
    assert ["cancelled", "expired"] == [reply.status for reply in queue.replies()]
