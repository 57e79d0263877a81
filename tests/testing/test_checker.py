"""The checker: a world that kept every promise is clean, and each broken promise is found and named."""

from __future__ import annotations

import shutil

import pytest

from recovery.testing import integrity
from recovery.testing.checker import RULES
from tests.testing.plants import PLANTS
from tests.testing.worlds import Databases, Files, World


@pytest.fixture(scope="module")
def databases(backend, tmp_path_factory, request):
    """Makes migrated databases, and copies of them."""
    if backend == "sqlite":
        yield Files(tmp_path_factory)
        return
    databases = Databases(request.getfixturevalue("postgres_server"))
    yield databases
    databases.drop()


@pytest.fixture(scope="module")
def lived(databases, tmp_path_factory):
    """A queue and a receiver in two databases, after everything happened in them once."""
    made = World(databases.make(), databases.make(), tmp_path_factory.mktemp("histories"))
    made.live()
    return made


@pytest.fixture
def world(lived, databases, tmp_path):
    """The same, to be broken."""
    folder = shutil.copytree(lived.folder, tmp_path / "histories")
    return World(databases.copy(lived.queue_url), databases.copy(lived.receiver_url), folder)


def test_a_world_that_kept_its_promises_is_clean(world):
    """No violation, and each operation without an answer is resolved: two were done, one was not."""
    verdict = world.check()
    assert () == verdict.violations
    assert (2, 1) == (verdict.resolved.done, verdict.resolved.not_done)
    assert () == verdict.not_run
    assert 7 == len(verdict.evidence.tasks)


@pytest.mark.parametrize(
    ("rule", "break_it", "subject"),
    [
        pytest.param(rule, break_it, subject, id=break_it.__name__.strip("_"))
        for rule, ways in PLANTS.items()
        for break_it, subject in ways
    ],
)
def test_a_broken_promise_is_found(world, rule, break_it, subject):
    """The violation names the rule and what it was broken for."""
    break_it(world)
    found = world.check().violations
    assert (rule, subject) in {(one.rule, one.subject) for one in found}, [str(one) for one in found]
    assert all(one.seen for one in found)


def test_every_rule_is_broken_once():
    """No rule goes without a planted violation."""
    assert {*RULES, "database is whole"} == set(PLANTS)


def test_a_check_that_cannot_be_made_says_why(world, monkeypatch):
    """Without pg_amcheck nothing is claimed about PostgreSQL's files; SQLite needs no program."""
    monkeypatch.setattr(integrity, "_found", lambda: None)
    expected = 0 if world.queue_url.startswith("sqlite") else 1
    verdict = world.check()
    assert (expected, ()) == (len(verdict.not_run), verdict.violations)
    assert all("pg_amcheck" in why for why in verdict.not_run)
