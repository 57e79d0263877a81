"""A plan that was made when the tables were empty still serves when they are large, and nobody has told the server."""

from __future__ import annotations

import sqlalchemy as sa

from benchmarks.targets import Place
from recovery import migrate
from recovery.backend import prepared
from tests.plans.conftest import fill_up, opened_at, statistics_by_hand
from tests.plans.gates import composes, faults, sent
from tests.plans.verbs import VERBS

READING = {"has_work", "has_reply", "accept", "accept_duplicate"}
"""What only reads is planned each time for what is asked, and so is what a caller's effect may run beside."""


def outgrown(url, prefix):
    """What is wrong with each verb's statements, planned before the tables were filled; and those planned anew."""
    place = Place(url, prefix)
    migrate(url, table_prefix=prefix)
    statistics_by_hand(place)
    with opened_at(place) as opened, opened.session() as on:
        for _ in range(2):  # The second time round nothing is new to the connection.
            for verb in VERBS.values():
                list(verb(on))
        _end_all(on)
        fill_up(place)
        told = {}
        anew = set()
        for name, verb in VERBS.items():
            list(verb(on))  # Passes over what filling left dead, and marks it so.
            seen = sent(on, name)
            told[name] = faults(name, seen, composes=composes(on))
            anew |= {name for one in seen if not one.kept}
    return {name: found for name, found in told.items() if found}, anew


def _end_all(on):
    tasks = on.settings.tables.tasks
    connection = on.connection()
    with connection.begin():
        open_ones = connection.execute(sa.select(tasks.c.task_id).where(tasks.c.ended_at.is_(None))).scalars().all()
    assert all(on.cancel(task_id) for task_id in open_ones)


def test_plans_that_outgrow_their_tables(postgres_database):
    """Every verb reads by its indexes, and no more than it needs, by the plan of another day."""
    assert ({}, READING) == outgrown(postgres_database, "grown_")


def test_plans_that_follow_the_tables_are_noticed(postgres_database, monkeypatch):
    """Without the settings that keep a plan to its indexes, what was made for empty tables reads large ones whole."""
    monkeypatch.setattr(prepared, "PLANNED", "SET LOCAL plan_cache_mode = force_generic_plan;")
    found, anew = outgrown(postgres_database, "followed_")
    assert anew == READING
    assert any("from end to end" in one for faults in found.values() for one in faults), found
