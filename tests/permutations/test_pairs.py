"""Two verbs over one task or one reply, in every permutation of their steps: as if one had come after the other."""

from __future__ import annotations

import pytest

from tests.permutations.choosing import is_full
from tests.permutations.judging import PASSES_OVER
from tests.permutations.scenes import (
    BATCH_SCENES,
    LONG_SCENES,
    MANY_ENDS,
    REPLY_SCENES,
    TASK_SCENES,
    TIME_SCENES,
    Scene,
)

SHOWN: dict[str, Scene] = {
    "claim": Scene("held, lease over", ("claim",), ("finish",)),
    "claim two": Scene("two held, leases over", ("claim two",), ("finish all",)),
    "claim reply": Scene("reply sending, lease over", ("claim reply",), ("renew reply",)),
    "claim two replies": Scene("two sending, leases over", ("claim two replies",), ("settle all",)),
}
"""For each verb that may find nothing where it would have found something before or after, a scene in which it does."""


@pytest.mark.parametrize("scene", TASK_SCENES, ids=str)
def test_two_verbs_over_one_task(scene, court, totals) -> None:
    """The answers and the tables are those of one order, nobody waits who may not, and the checker finds nothing."""
    totals.add("one task", court.judge(scene).explored)


@pytest.mark.parametrize("scene", REPLY_SCENES, ids=str)
def test_two_verbs_over_one_reply(scene, court, totals) -> None:
    """The same for the outbox, also beside a claim and a reconcile."""
    totals.add("one reply", court.judge(scene).explored)


@pytest.mark.parametrize("scene", LONG_SCENES if is_full() else TIME_SCENES, ids=str)
def test_time_passes_between_the_steps(scene, court, totals) -> None:
    """The clock is turned at each moment: it is as if it had been turned between two verbs.

    Whoever waits while its claim runs out is refused.
    """
    totals.add("and the clock", court.judge(scene).explored)


@pytest.mark.parametrize("scene", [*BATCH_SCENES, *MANY_ENDS], ids=str)
def test_batches_over_two_rows(scene, court, totals) -> None:
    """In opposite orders, also while a third one has one of the rows: no deadlock, and the result of one order."""
    totals.add("two rows", court.judge(scene).explored)


@pytest.mark.parametrize("verb", PASSES_OVER)
def test_a_permitted_outcome_occurs(verb, court) -> None:
    """What is permitted beside the outcomes of one verb after the other is really seen, or it would be no exception."""
    assert court.judge(SHOWN[verb]).extras[verb] > 0
