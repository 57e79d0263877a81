"""An upgrade in the middle of the work: actors of the previous release go on, those of this one join them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery import migrate
from recovery.schema import VERSION
from recovery.testing import Verdict
from recovery.testing.history import OK
from tests.upgrade.catalogs import seen
from tests.upgrade.company import Company
from tests.upgrade.interrupting import FULL, STEP, changed_ladder, climb_instead
from tests.upgrade.releases import Release, current

CAST = {"send": 2, "work": 2, "deliver": 1}
ROUNDS = 5 if FULL else 1
FILL = "UPDATE {p}tasks SET queue = 'default' WHERE queue IS NULL"
COPY = "coalesce(queue, 'default'), coalesce(priority, 0)\")"
LOSES = {
    "fence": ((COPY, COPY + ".replace('fence', '0')"), (FILL, "UPDATE {p}tasks SET queue = 'default', fence = 0")),
    "task": (
        ("SELECT {FILLED} FROM {{p}}tasks", "SELECT {FILLED} FROM {{p}}tasks WHERE state <> 'pending'"),
        (FILL, "DELETE FROM {p}tasks WHERE state = 'pending'\", \"" + FILL),
    ),
}
"""What a broken step does on each backend: it begins all fences anew, or leaves out what waits."""


@pytest.fixture
def company(old_url: str, tmp_path: Path) -> Iterator[Company]:
    """Nobody yet, on a database that the previous release made."""
    (tmp_path / "histories").mkdir()
    made = Company(old_url, tmp_path / "histories")
    yield made
    made.close()


def test_the_previous_release_works_on_through_an_upgrade(
    company: Company, previous: Release, backend: str, tell: Callable[[str], None]
) -> None:
    """Nothing acknowledged is lost and nothing is done twice, before, during and after, alone and side by side."""
    company.hire(previous, **CAST)
    company.until_all_met()
    assert VERSION == migrate(company.url)
    company.until_all_met()
    company.hire(current(), **CAST)
    for _ in range(ROUNDS):
        company.until_all_met()
    company.let_go(role="send")
    company.let_go(previous)
    company.until_drained()
    company.let_go()
    verdict = company.verdict()
    assert () == verdict.violations
    tell(f"an upgrade under work: {backend}: {told(company, verdict)}")


def told(company: Company, verdict: Verdict) -> str:
    """What was stored, what the actors of each release were answered, and what they were refused."""
    answers = Counter[str]()
    for one in company.members:
        answers[one.release.name] += one.answers()
    refused = Counter(one.answered["error"] for one in verdict.evidence.operations if one.event != OK)
    with seen(company.url) as look:
        (row,) = look.all("SELECT count(*), min(queue), max(queue), min(priority), max(priority) FROM tasks")
    assert ("default", "default", 0, 0) == row[1:]
    shares = ", ".join(f"{count} answers to the {name} release" for name, count in answers.items())
    return f"{row[0]} tasks, {shares}, refused {dict(refused)}, {len(verdict.violations)} violations"


def test_an_upgrade_that_has_nothing_to_do(company: Company, backend: str, tell: Callable[[str], None]) -> None:
    """Actors of this release go on while others migrate what is at head."""
    migrate(company.url)
    company.hire(current(), **CAST)
    for _ in range(3):
        company.until_all_met(2)
        assert VERSION == migrate(company.url)
    company.until_all_met(2)
    company.let_go(role="send")
    company.until_drained()
    company.let_go()
    verdict = company.verdict()
    assert () == verdict.violations
    tell(f"an upgrade with nothing to do, under work: {backend}: {told(company, verdict)}")


@pytest.mark.parametrize("loss", LOSES)
def test_an_upgrade_that_breaks_a_promise_is_found(
    company: Company, previous: Release, loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a step that forgets the fences, or a task that waits, after the same work."""
    company.hire(previous, send=1, work=1)
    company.until_all_met()
    company.let_go(role="work")
    company.until_all_met()
    company.let_go()
    climb_instead(monkeypatch, changed_ladder(tmp_path, STEP, *LOSES[loss]))
    migrate(company.url)
    assert () != company.verdict(drained=False).violations
