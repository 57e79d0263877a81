"""The driver itself: what it counts, what it puts back, and that merging equal states leaves no outcome out."""

from __future__ import annotations

import pytest

from recovery import Queue
from tests.permutations.beginnings import AUTH, message
from tests.permutations.exploring import explore
from tests.permutations.faults import FAULTS
from tests.permutations.place import START
from tests.permutations.scenes import LATER, Scene

MERGED = (
    Scene("pending", ("claim",), ("cancel",)),
    Scene("held", ("finish",), ("fail",)),
    Scene("held", ("renew",), ("finish",), LATER),
    Scene("held, lease over", ("renew",), ("claim",)),
    Scene("reply sending, lease over", ("claim reply",), ("settle delivered",)),
)


@pytest.mark.parametrize("scene", MERGED, ids=str)
def test_merging_leaves_nothing_out(scene, court) -> None:
    """Every permutation run from beginning to end: as many as were counted, with the same outcomes."""
    play = scene.play(court.begun(scene.beginning))
    merged, each = explore(court.stage, play), explore(court.stage, play, merge=False)
    assert merged.permutations == each.runs == each.permutations
    assert merged.outcomes.keys() == each.outcomes.keys()
    assert merged.outwaited.keys() == each.outwaited.keys()


def test_two_that_never_wait_have_every_permutation(court) -> None:
    """Two claims of two steps each, neither of which waits: six permutations."""
    play = Scene("pending", ("claim",), ("claim",)).play(court.begun("pending"))
    found = explore(court.stage, play)
    assert (6, 0) == (found.permutations, found.waits)


def test_a_wait_is_seen(court) -> None:
    """The second of two that want one row waits from its first step on, and goes on when the first has committed."""
    play = Scene("held", ("finish",), ("finish otherwise",)).play(court.begun("held"))
    found = explore(court.stage, play)
    assert found.waits > 0
    assert {"a", "b"} == found.waited.keys()


def test_the_clock_is_the_librarys(court) -> None:
    """What the library takes for the server's clock is what was set by hand, to the second and at once."""
    court.place.empty()
    with Queue.open(court.place.url, allowed_sources={"agent-a"}, lease_seconds=10.0) as queue:
        for now in (START, START + 7):
            court.place.turn(now)
            task = queue.task(queue.receive(message(now), AUTH).task_id)
            assert task is not None
            assert now == task.received_at


def test_a_beginning_is_put_back_whole(court) -> None:
    """After a run, and after another beginning, tables and clock are again as they were set aside."""
    beginning = court.begun("reply sending, lease over").beginning
    court.place.put_back(beginning)
    before = (court.place.rows(), court.place.now)
    court.judge(Scene("reply sending, lease over", ("claim reply",), ("reconcile",)))
    court.place.put_back(court.begun("pending").beginning)
    assert before[0] != court.place.rows()
    court.place.put_back(beginning)
    assert before == (court.place.rows(), court.place.now)


def test_a_deadlock_is_tried_again_to_success(new_court, monkeypatch) -> None:
    """Where a fault makes batches deadlock, the library begins again, and both come to what one order would give."""
    fault = FAULTS["a batch locks in the order in which it was asked"]
    court = new_court()
    fault.plant(monkeypatch)
    play = fault.scene.play(court.begun(fault.scene.beginning))
    serial, found = explore(court.stage, play, whole=True), explore(court.stage, play)
    assert found.deadlocks > 0
    assert found.deadlocks == found.retries
    assert found.outcomes.keys() <= serial.outcomes.keys()
