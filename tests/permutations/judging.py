"""What may come of a permutation: what comes of one verb after the other, and a little more, each with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from recovery.testing.checker import judge
from recovery.testing.evidence import Evidence, QueueRows, ReceiverRows
from tests.permutations.beginnings import Begun, begun
from tests.permutations.exploring import Explored, Path, explore
from tests.permutations.place import Place
from tests.permutations.running import Ended, Outcome, Stage
from tests.permutations.scenes import HOLDS, MANY_ENDS, OVER, STALE, Scene

NOTHING: Final = "[]"
PASSES_OVER: Final = {
    "claim": "a claim never waits, so a task that another has locked at that moment is not claimable now",
    "claim two": "a batch takes what it can have now, and so finds nothing where another has locked all of it",
    "claim reply": "a dispatcher never waits either",
    "claim two replies": "nor does its batch",
}
"""Outcomes beside those of one verb after the other: which verb may find nothing and leave all to the other, and why.

The other then answers, and the tables hold, what they would have without it.
"""


class Broken(AssertionError):
    """A permutation broke a promise. `path` is who went on, in order; `whole` says that it was one verb at a time."""

    def __init__(self, scene: Scene, path: Path, said: str, *, whole: bool = False) -> None:
        self.scene, self.path, self.whole = scene, path, whole
        super().__init__(f"{scene}\n  {' '.join(path)}\n  {said}")


@dataclass(frozen=True, slots=True)
class Judged:
    """What was seen of one scene; `extras` counts outcomes that no order of whole verbs has, by who found nothing."""

    explored: Explored
    extras: Counter[str] = field(default_factory=Counter)


class Court:
    """Judges scenes over one place. Beginnings are made once."""

    def __init__(self, place: Place, url: str | None = None, *, every_statement: bool = False) -> None:
        self.place = place
        self._begun: dict[str, Begun] = {}
        self.stage = Stage(place, url or place.url, every_statement=every_statement)

    def close(self) -> None:
        """End the actors."""
        self.stage.close()

    def begun(self, name: str) -> Begun:
        """A beginning, made at its first use."""
        if name not in self._begun:
            self._begun[name] = begun(self.place, name)
        return self._begun[name]

    def judge(self, scene: Scene) -> Judged:
        """Run a scene in every permutation. Raises Broken at what may not be."""
        beginning = self.begun(scene.beginning)
        serial = explore(self.stage, scene.play(beginning), whole=True)
        for path, ended in serial.outcomes.values():
            _check(scene, path, beginning, ended, whole=True)
        explored = explore(self.stage, scene.play(beginning))
        judged = Judged(explored)
        for outcome, (path, ended) in explored.outcomes.items():
            if outcome in serial.outcomes:
                continue
            _check(scene, path, beginning, ended)
            if scene not in MANY_ENDS:
                judged.extras[self._permitted(scene, path, outcome, serial)] += 1
        _check_waits(scene, explored)
        return judged

    def _permitted(self, scene: Scene, path: Path, outcome: Outcome, serial: Explored) -> str:
        for name, script in scene.scripts.items():
            if script[0] in PASSES_OVER and (NOTHING,) == dict(outcome.answers)[name]:
                play = scene.play(self.begun(scene.beginning), without=name)
                alone = explore(self.stage, play, whole=True)
                if _without(outcome, name) in {_without(one, name) for one in alone.outcomes}:
                    return script[0]
        orders = "\n  ".join(map(str, serial.outcomes))
        raise Broken(scene, path, f"{outcome}\n  and one after the other it would be\n  {orders}")


def _without(outcome: Outcome, name: str) -> Outcome:
    return Outcome(tuple(one for one in outcome.answers if one[0] != name), outcome.tables)


def _check(scene: Scene, path: Path, beginning: Begun, ended: Ended, *, whole: bool = False) -> None:
    """What the checker of `recovery.testing` finds in the rows and answers of one run."""
    rows = ended.rows
    queue = QueueRows(rows["inbox"], rows["tasks"], rows["outbox"], rows["journal"], float(ended.now))
    receiver = ReceiverRows(rows["receipts"], rows["effects"])
    evidence = Evidence((*beginning.operations, *ended.operations), queue, receiver)
    for violation in judge(evidence):
        raise Broken(scene, path, str(violation), whole=whole)


def _check_waits(scene: Scene, explored: Explored) -> None:
    if explored.deadlocks or explored.retries:
        said = f"{explored.deadlocks} deadlocks, and {explored.retries} transactions were tried again"
        raise Broken(scene, explored.tried_again, said)
    for name, path in explored.waited.items():
        if set(scene.scripts[name]) & PASSES_OVER.keys():
            raise Broken(scene, path, "a claim waited")
    if scene.tick not in OVER or {scene.a, scene.b} == {("finish",)}:
        return  # A claim that is not over, or one that is asked again what was answered before it was.
    for (name, answers), path in explored.outwaited.items():
        if scene.scripts[name][0].removeprefix(STALE) in HOLDS and answers != ("Fenced",):
            raise Broken(scene, path, f"{name} waited while its claim ran out, and was answered {answers[0]}")
