"""The state machine: each step runs one verb on SQLite, on PostgreSQL and in the model, and compares all there is."""

from __future__ import annotations

import contextlib
from itertools import zip_longest
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.model.ledger import COLUMNS, Contents, Knobs
from tests.model.model import Model
from tests.model.things import Refused
from tests.model.worlds import World

START = 1000.0
OF_TASK = COLUMNS["journal"].index("task_id")
OF_REPLY = COLUMNS["outbox"].index("reply_id")


class Difference(AssertionError):
    """The two backends and the model do not say the same."""


class Compared(RuleBasedStateMachine):
    """Runs verbs three times and compares. `worlds` are the databases, SQLite first."""

    worlds: ClassVar[tuple[World, ...]]

    def start(self, knobs: Knobs, *, held: bool) -> None:
        """Empty databases, an empty model."""
        self.model = Model(knobs, START)
        self.ordered: list[str] = []
        for world in self.worlds:
            world.begin(knobs, START, held=held)

    def run(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """The answer that all three gave, a Refused where all three refused; then the tables are compared."""
        answer = self.ask(verb, *args, **kwargs)
        self.compare(verb)
        return answer

    def ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """The same without a look at the tables, for several verbs in a row."""
        expected = self._expected(verb, args, kwargs)
        seen = [world.call(verb, *args, **kwargs) for world in self.worlds]
        for answer in seen:
            if not expected == answer:
                raise Difference(f"{verb}: the contract says {expected!r}, and the queues {seen!r}")
        if len({repr(answer) for answer in seen}) > 1:
            raise Difference(f"{verb}: the queues differ: {seen!r}")
        return expected

    def _expected(self, verb: str, args: Any, kwargs: Any) -> Any:
        try:
            return getattr(self.model, verb)(*args, **kwargs)
        except Refused as error:
            return error

    def compare(self, step: str) -> None:
        """Compare the time and every table, of the databases with each other and with the model."""
        if any(world.clock.now != self.model.now for world in self.worlds):
            raise Difference(f"after {step} the clocks differ")
        seen = [world.contents() for world in self.worlds]
        self._learn_order(step, [row[OF_REPLY] for row in seen[0]["outbox"]])
        expected = self.model.contents()
        for contents in seen:
            _compare_tables(step, expected, contents)
        for table, rows in seen[0].items():
            if rows != seen[1][table]:
                raise Difference(f"after {step}, {table}: the databases have {_apart(rows, seen[1][table])}")

    def _learn_order(self, step: str, reply_ids: list[str]) -> None:
        if reply_ids[: len(self.ordered)] != self.ordered:
            raise Difference(f"after {step} replies changed their order")
        self.ordered = reply_ids
        if {*reply_ids} == {*self.model.outbox}:
            self.model.learn(reply_ids)

    def teardown(self) -> None:
        """Let go of the connections."""
        with contextlib.suppress(AttributeError):
            for world in self.worlds:
                world.end.close()


def _compare_tables(step: str, expected: Contents, seen: Contents) -> None:
    for table, rows in seen.items():
        wanted, had = expected[table], rows
        if table == "journal":
            # Across tasks the order inside one transaction is nobody's promise.
            wanted, had = (sorted(some, key=lambda row: str(row[OF_TASK])) for some in (wanted, rows))
        if wanted != had:
            raise Difference(f"after {step}, {table}: the model and a database have {_apart(wanted, had)}")


def _apart(one: list[Any], other: list[Any]) -> str:
    """The rows in which two tables differ."""
    pairs = [(mine, yours) for mine, yours in zip_longest(one, other) if mine != yours]
    return "; ".join(f"{mine!r} and {yours!r}" for mine, yours in pairs)
