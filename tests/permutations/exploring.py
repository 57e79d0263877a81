"""Every permutation of the steps of a scene, by running it again and again, each time with another choice somewhere.

Two permutations that come to the same state go on alike, so what follows is run once: each state is left once by each
of its choices. How many permutations that stands for is counted, not run.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from tests.permutations.running import Ended, Outcome, Play, Run, Stage

Path: TypeAlias = tuple[str, ...]
END: Final = "the end"


@dataclass(slots=True)
class Explored:
    """What came out of every permutation, each outcome with the first one that led to it.

    The same of who waited, and of what those answered who waited while the clock was turned. `tried_again` is one in
    which a transaction was begun again, or two met in a deadlock.
    """

    outcomes: dict[Outcome, tuple[Path, Ended]] = field(default_factory=dict)
    waited: dict[str, Path] = field(default_factory=dict)
    outwaited: dict[tuple[str, tuple[str, ...]], Path] = field(default_factory=dict)
    permutations: int = 0
    runs: int = 0
    waits: int = 0
    deadlocks: int = 0
    retries: int = 0
    tried_again: Path = ()

    def add(self, run: Run) -> None:
        """Note what was seen in one run, and, where it was not left before its end, what came out of it."""
        path = tuple(run.schedule)
        self.runs += 1
        self.waits += run.waits
        self.deadlocks += run.deadlocks
        self.retries += run.retries()
        if run.deadlocks or run.retries():
            self.tried_again = self.tried_again or path
        for name in run.waited:
            self.waited.setdefault(name, path)
        if run.is_left:
            return
        ended = run.ended()
        self.outcomes.setdefault(ended.outcome, (path, ended))
        for name, answers in ended.outcome.answers:
            if name in run.outwaited:
                self.outwaited.setdefault((name, answers), path)


def explore(stage: Stage, play: Play, *, whole: bool = False, merge: bool = True) -> Explored:
    """Run a play in every permutation of its steps; `whole` makes each call one step.

    Without `merge` every permutation is run from its beginning to its end.
    """
    found, edges = Explored(), _Edges(is_free=play.hindrance is not None)
    pending: list[Path] = [()]
    while pending:
        run = Run(stage, play, whole=whole)
        try:
            pending += _through(run, pending.pop(), edges, merge=merge)
            found.add(run)
        except BaseException:
            run.abandon()
            raise
    found.permutations = edges.count()
    return found


def _through(run: Run, path: Path, edges: _Edges, *, merge: bool) -> list[Path]:
    """Follow a path, go on to the end, and return the ways that were not taken where nobody had been before."""
    others: list[Path] = []
    following = list(path)
    while choices := run.choices():
        here = run.state() if merge else tuple(run.schedule)
        if following and following[0] in choices:
            choice = following.pop(0)
        else:
            assert edges.is_free or not following, "the same steps led to another state than before"
            following.clear()
            choice = choices[0]
            if edges.is_new(here):
                others += [(*run.schedule, other) for other in choices[1:]]
            elif run.may_be_left:
                run.abandon()
                break
        edges.leave(here, choice)
        run.take(choice)
        more = run.choices()
        edges.arrive((run.state() if merge else tuple(run.schedule)) if more else END)
    return others


class _Edges:
    """The states that were met, and where each choice leads from there.

    A choice leads to one state, but where two who waited for a third are `free` at once, and either may be first.
    """

    def __init__(self, *, is_free: bool) -> None:
        self.is_free = is_free
        self._edges: dict[Hashable, dict[str, set[Hashable]]] = {}
        self._first: Hashable = END
        self._left: tuple[Hashable, str] = (END, "")

    def is_new(self, state: Hashable) -> bool:
        return state not in self._edges

    def leave(self, state: Hashable, choice: str) -> None:
        if not self._edges:
            self._first = state
        self._edges.setdefault(state, {})
        self._left = (state, choice)

    def arrive(self, state: Hashable) -> None:
        here, choice = self._left
        known = self._edges[here].setdefault(choice, set())
        known.add(state)
        assert self.is_free or len(known) == 1, "the same steps led to another state than before"

    def count(self) -> int:
        """How many ways there are from the beginning to the end."""

        @cache
        def ways(state: Hashable) -> int:
            return 1 if state == END else sum(ways(one) for found in self._edges[state].values() for one in found)

        return ways(self._first)
