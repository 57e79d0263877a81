"""Races behind PgBouncer in transaction mode: the same permutations, where each transaction may run on any line."""

from __future__ import annotations

import psycopg
import pytest

from recovery import migrate
from recovery.repositories import claiming
from tests.permutations.judging import Court
from tests.permutations.place import Place
from tests.permutations.scenes import BATCH_SCENES, REPLY_SCENES, TASK_SCENES, TIME_SCENES

LEVEL = "default_transaction_isolation = serializable"


@pytest.fixture(scope="module")
def court(postgres_server, pgbouncer):
    """Actors behind PgBouncer, and whoever looks at the tables around it."""
    url = postgres_server.create_database(postgres_server.template_database("migrated", migrate))
    place = Place(url, (LEVEL,))
    made = Court(place, pgbouncer.url(url))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claiming, "WHOLE_SECONDS", 1e9)
        yield made
    made.close()
    place.close()
    postgres_server.drop_database(url)


@pytest.mark.parametrize("scene", [*TASK_SCENES, *REPLY_SCENES, *TIME_SCENES, *BATCH_SCENES], ids=str)
def test_every_permutation_behind_it(scene, court) -> None:
    """The answers and the tables are those of one order, nothing is tried again, and whoever waits is seen to wait."""
    court.judge(scene)


def test_the_actors_are_behind_it(court) -> None:
    """No actor's line is known to the server: what it is told of its own connection is PgBouncer's word."""
    with psycopg.connect(court.place.url) as line:
        known = {pid for (pid,) in line.execute("SELECT pid FROM pg_stat_activity")}
        assert line.info.backend_pid in known
    assert set() == known & {actor.line().info.backend_pid for actor in court.stage.actors.values()}
