"""Which way a verb goes: one statement where the backend composes, steps under the one write lock where it does not.

Both ways end in the same rows, so that no outcome of one worker shows it. Steps on PostgreSQL would read the clock
before their locks, and lock in the order that they were given.
"""

from __future__ import annotations

import pytest

from recovery import Settlement
from recovery.repositories import claiming, finishing, receiving, sending
from tests.contract.cells import TASK_IDS
from tests.plugins.queues import AUTH, envelope


@pytest.fixture
def one_way(backend, monkeypatch):
    """Forbids the other way."""
    other = "_in_steps" if backend == "postgresql" else "_composed"
    for module in (finishing, receiving, sending):
        monkeypatch.setattr(module, other, lambda *_: pytest.fail("the other way"))
    forbidden = "get_ready" if backend == "postgresql" else "_composed"
    monkeypatch.setattr(claiming, forbidden, lambda *_, **__: pytest.fail("the other way"))


@pytest.mark.usefixtures("one_way")
def test_verbs_that_hold(queue, clock):
    """All of them go the backend's own way, also where something is due."""
    queue.receive_all([envelope(name) for name in ("a", "b", "c")], AUTH)
    queue.receive(envelope("d", deadline=1005.0), AUTH)
    assert TASK_IDS["a"] == queue.claim("v").task_id
    clock.advance(10)
    first, second, third = queue.claim_batch("w", 5)
    queue.finish(first, 1)
    assert ["done", "done"] == [one.state for one in queue.finish_batch([(second, 1), (third, 2)])]
    held = queue.claim_reply_batch("d", 5)
    assert "sent" == queue.settle(held[0], delivered=True)
    assert ["sent", "dead"] == [
        one.state
        for one in queue.settle_batch(
            [Settlement(held[1], delivered=True), Settlement(held[2], delivered=False, permanent=True)]
        )
    ]


@pytest.mark.usefixtures("one_way")
def test_finish_and_claim(queue, backend, monkeypatch):
    """Where it is composed, the finish and the claim are one statement."""
    queue.receive_all([envelope("a"), envelope("b")], AUTH)
    held = queue.claim("w")
    if backend == "postgresql":
        monkeypatch.setattr(finishing, "finish_all", lambda *_: pytest.fail("the other way"))
        monkeypatch.setattr(claiming, "claim", lambda *_: pytest.fail("the other way"))
    assert {TASK_IDS["a"], TASK_IDS["b"]} == {held.task_id, queue.finish_and_claim(held, 1).task_id}
