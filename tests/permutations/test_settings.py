"""The same whatever the database says: each level of isolation, and settings that force other plans."""

from __future__ import annotations

import pytest

from tests.permutations.choosing import VARIABLE, is_full, settings
from tests.permutations.scenes import BATCH_SCENES, CORE, REPLY_SCENES, TASK_SCENES, TIME_SCENES

SCENES = (*TASK_SCENES, *REPLY_SCENES, *TIME_SCENES, *BATCH_SCENES) if is_full() else CORE


@pytest.fixture(scope="module", params=settings(full=is_full()), ids=", ".join)
def said(request):
    """What the database says."""
    return request.param


@pytest.fixture(scope="module")
def court_of(said, new_court):
    """A court over a database that says so to everybody who connects."""
    court = new_court(*said)
    told = {one.partition(" = ")[0]: court.place.setting(one.partition(" = ")[0]) for one in said}
    assert dict(one.split(" = ") for one in said) == told
    return court


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_whatever_the_database_says(scene, said, court_of, totals) -> None:
    """The library wins: the answers and the tables are those of one order, and nothing has to be tried again."""
    totals.add(", ".join(said), court_of.judge(scene).explored)


def test_the_environment_chooses_the_form() -> None:
    """The short form, unless the full one is asked for; nothing else is understood."""
    assert (False, False, True) == (is_full({}), is_full({VARIABLE: "short"}), is_full({VARIABLE: "full"}))
    with pytest.raises(pytest.UsageError, match=VARIABLE):
        is_full({VARIABLE: "all"})


def test_every_level_and_every_plan_is_in_both_forms() -> None:
    """The full form has each level with each plan, and the short one each of them alone."""
    short, full = ({one for said in settings(full=form) for one in said} for form in (False, True))
    assert (short, 9, 24) == (full, len(settings(full=False)), len(settings(full=True)))
