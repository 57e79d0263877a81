"""How a batch is split: what is sent at once, what is compared here, and what has to wait for what came before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from recovery import Claim, Verdict
from recovery.errors import InvalidEnvelope
from recovery.repositories.batches import verdicts

REFUSED = InvalidEnvelope("no")


def claim(name, fence=1):
    """A claim of the task of that name."""
    return Claim(name, "w", fence, 1, None, 0.0, 0.0)


A, B, C = claim("a"), claim("b"), claim("c")
MADE_UP = claim(["x"])
YOUNGER = claim("a", fence=2)
NO_FENCE = claim("b", fence=-1)
BATCHES = {
    "nothing": ([], [], []),
    "one": ([A], [[(0, A)]], []),
    "different ones": ([A, B, C], [[(0, A), (1, B), (2, C)]], []),
    "the same twice": ([A, A], [[(0, A)], [(1, A)]], []),
    "two claims of one": ([A, B, YOUNGER], [[(0, A), (1, B)], [(2, YOUNGER)]], []),
    "three rounds": ([A, B, A, A, B], [[(0, A), (1, B)], [(2, A), (4, B)], [(3, A)]], []),
    "made up": ([MADE_UP, B, MADE_UP], [[(1, B)]], [[(0, MADE_UP), (2, MADE_UP)]]),
    "made up alone": ([NO_FENCE], [], [[(0, NO_FENCE)]]),
    "refused": ([REFUSED, A, REFUSED], [[(1, A)]], []),
}


@pytest.mark.parametrize(("items", "sent", "compared"), BATCHES.values(), ids=BATCHES.keys())
def test_where_statements_are_composed(items, sent, compared):
    """No row stands twice in what is sent at once; what cannot be of any row is never sent; each has its verdict."""
    said, *rounds = split(items, composes=True)
    assert [sent, compared] == rounds
    assert [expected(one) for one in items] == said


def test_in_steps():
    """Elsewhere nothing is sent, and no row stands twice in a round either."""
    items = [A, MADE_UP, A, B, MADE_UP]
    said, *rounds = split(items, composes=False)
    assert [[], [[(0, A), (1, MADE_UP), (3, B), (4, MADE_UP)], [(2, A)]]] == rounds
    assert [expected(one) for one in items] == said


def split(items, *, composes):
    """The verdicts, what was sent in each round, and what was compared."""
    room: Any = SimpleNamespace(backend=SimpleNamespace(composes=composes))
    sent: list[Any] = []
    compared: list[Any] = []

    def to(rounds):
        def settle(several):
            rounds.append(list(several))
            return {index: Verdict(str(one.task_id), "done") for index, one in several}

        return settle

    return verdicts(room, items, lambda item: item, to(sent), to(compared)), sent, compared


def expected(item):
    """The verdict of an item: an error that it came with stays with it."""
    return Verdict("", None, item) if item is REFUSED else Verdict(str(item.task_id), "done")
