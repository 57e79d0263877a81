"""An upgrade is killed before and after each of its statements, and run again: all or nothing, and no row is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from recovery import migrate, open_engine
from recovery.schema import VERSION
from tests.upgrade.catalogs import upgraded
from tests.upgrade.interrupting import STEP, Upgrade, changed_ladder, killed_at, side_files, state
from tests.upgrade.older import ADDED, config_of

starts = pytest.mark.parametrize("new_start", ["empty", "filled"], indirect=True)
COMMITS_EACH = (
    ('        connection.exec_driver_sql("BEGIN IMMEDIATE")', "        return"),
    ('isolation_level="READ COMMITTED"', 'isolation_level="AUTOCOMMIT"'),
)
"""A ladder that commits each statement by itself."""


@starts
def test_killed_at_every_statement(
    upgrade: Upgrade, backend: str, tell: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    """Killed at any statement, the database is as it was or upgraded, says which, and can be upgraded as ever."""
    points = upgrade.points()
    found = {}
    for point in points:
        url = upgrade.make()
        killed_at(url, point)
        if wrongs := upgrade.wrongs(url, point):
            found[point, upgrade.sent[point // 2]] = wrongs
    assert {} == found
    start = request.node.callspec.params["new_start"]
    whole = 2 * len(upgrade.sent)
    tell(f"upgrades killed: {backend}, {start}: {len(points)} of {whole} points in {whole // 2} statements, all whole")


def test_the_undisturbed_upgrade_keeps_every_row(new_filled: Callable[[], str]) -> None:
    """What the others are compared with: each row cell by cell, with `default` and 0 where nothing was said."""
    way = Upgrade(new_filled)
    assert upgraded(way.start.rows, VERSION, ADDED) == way.head.rows
    assert (8, 5) == (len(way.head.rows["tasks"]), len(way.head.rows["outbox"]))


@pytest.mark.parametrize("new_start", ["filled"], indirect=True)
def test_a_ladder_that_commits_each_statement_is_found(upgrade: Upgrade, tmp_path: Path) -> None:
    """Planted: without one transaction around all, a kill in the middle of the step leaves half of it."""
    steps = changed_ladder(tmp_path, "env.py", *COMMITS_EACH)
    step = steps / STEP  # Its lock wants the transaction that is missing.
    step.write_text(step.read_text().replace("LOCK TABLE {p}tasks IN ACCESS EXCLUSIVE MODE", "SELECT 1"))
    middle = next(number for number, said in enumerate(upgrade.sent) if "ix_tasks_claimable" in said)
    url = upgrade.make()
    killed_at(url, 2 * middle, steps)
    assert "it is neither as it was nor upgraded, or not the one that is due" in upgrade.wrongs(url, 2 * middle)


@pytest.mark.parametrize("new_start", ["filled"], indirect=True)
def test_what_an_upgrade_must_not_lose_is_found(upgrade: Upgrade) -> None:
    """Planted: one row that is gone, one cell that is another, one index that is missing, are each told."""
    after = 2 * len(upgrade.sent)
    for damage in ("DELETE FROM effects", "UPDATE tasks SET fence = 0", "DROP INDEX ix_tasks_arrival", "SELECT 1"):
        url = upgrade.make()
        migrate(url)
        engine = open_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.text(damage))
        engine.dispose()
        assert (damage == "SELECT 1") == ([] == upgrade.wrongs(url, after)), damage


def test_what_lies_beside_a_file_is_found(tmp_path: Path) -> None:
    """Planted: a rollback journal that was left, and a file that others can read."""
    url = f"sqlite:///{tmp_path}/x.db"
    migrate(url)
    assert [] == side_files(url, ())
    (tmp_path / "x.db-journal").touch(0o600)
    (tmp_path / "x.db").chmod(0o640)
    assert ["x.db has mode 640", "x.db-journal was left"] == sorted(side_files(url, ()))


@pytest.mark.parametrize("new_start", ["filled"], indirect=True)
def test_there_is_no_way_down(upgrade: Upgrade) -> None:
    """Climbing down is refused with a sentence, and leaves the database as it was."""
    url = upgrade.make()
    migrate(url)
    with pytest.raises(NotImplementedError, match="restore a backup"):
        command.downgrade(config_of(url), "0001")
    assert upgrade.head == state(url)
