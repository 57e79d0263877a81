"""One backend under test: a queue and a receiver with a clock of their own, and a look at all of its tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import sqlalchemy as sa

import recovery
from recovery import Backoff, BatchFailed, ManualClock, Queue, Receipt, Receiver, open_engine
from tests.model.ledger import COLUMNS, Contents, Knobs, Wait
from tests.model.things import Broken, Failure, Thing

ORDER = {"tasks": "arrival", "outbox": "arrival", "journal": "seq"}
SELECTS = {
    table: f"SELECT {', '.join(columns)} FROM {table} ORDER BY {ORDER.get(table, columns[0])}"
    for table, columns in COLUMNS.items()
}
CLEARED = ("journal", "effects", "receipts", "outbox", "tasks", "inbox")


class World:
    """One database, emptied and opened anew for each example."""

    def __init__(self, url: str) -> None:
        self.engine, self._outside = open_engine(url), open_engine(url)
        self._raw = self._outside.raw_connection()
        self._is_server = self.engine.dialect.name == "postgresql"
        if self._is_server:
            self._raw.driver_connection.autocommit = True  # type: ignore[union-attr] # psycopg's
        self.end = contextlib.ExitStack()

    def begin(self, knobs: Knobs, now: float, *, held: bool) -> None:
        """Empty the tables and open a queue with these settings; `held` keeps it on one connection."""
        self.end.close()
        self._empty()
        self.clock = ManualClock(now)
        # The last to go: what a connection knows of one example must not reach into the next.
        self.end.callback(self.engine.dispose)
        self._receiver = self.end.enter_context(Receiver(self.engine, clock=self.clock))
        queue = self.end.enter_context(Queue(self.engine, clock=self.clock, **_settings(knobs)))
        self._queue: Any = self.end.enter_context(queue.session()) if held else queue

    def close(self) -> None:
        """Leave the database."""
        self.end.close()
        self._raw.close()
        self._outside.dispose()

    def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Run one verb, and return its answer or what it raised in the shape of the model's."""
        try:
            return plain(self._call(verb, [self.real(arg) for arg in args], self._real_fields(kwargs)))
        except Exception as error:  # noqa: BLE001 - which one it is, is what is compared
            return plain(error)

    def _call(self, verb: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if verb == "dispatch_once":
            return self._queue.dispatch_once(self._receiver_that(args[0]), *args[1:])
        on = self._receiver if verb in {"accept", "seen", "effect_count"} else self._queue
        return getattr(on, verb)(*args, **kwargs)

    def _receiver_that(self, way: str) -> Any:
        return object() if way == "none" else Reached(way, self._receiver, self.clock, self._queue.settings)

    def real(self, value: Any) -> Any:
        """The product's own records in the place of the model's, wherever they stand."""
        if isinstance(value, Thing):
            return _class(value.kind)(**self._real_fields(value.fields))
        if isinstance(value, Broken):
            return _breaking(self.real(value.items))
        if type(value) in {list, tuple} and any(isinstance(one, Thing | tuple) for one in value):
            return type(value)(self.real(one) for one in value)
        return value

    def _real_fields(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: EFFECTS.get(value) if name == "apply" else self.real(value) for name, value in given.items()}

    def raise_floor(self, floor: int) -> None:
        """What a restore does to a database."""
        self.run(f"UPDATE fence_floor SET floor = {floor}")

    def contents(self) -> Contents:
        """Every row of every table, in its order."""
        return dict(zip(SELECTS, self._read(list(SELECTS.values())), strict=True))

    def _read(self, statements: list[str]) -> list[list[tuple[Any, ...]]]:
        if not self._is_server:
            return [self.run(statement) for statement in statements]
        # All in one message: a round trip for each table would be a third of the time of a step.
        cursor = self._raw.cursor()
        cursor.execute("; ".join(statements))
        found: list[Any] = [cursor.fetchall()]
        while cursor.nextset():
            found.append(cursor.fetchall())
        cursor.close()
        return found

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """One statement of its own, past the product."""
        cursor = self._raw.cursor()
        cursor.execute(text)
        found: Any = cursor.fetchall() if cursor.description else []
        cursor.close()
        return list(found)

    def _empty(self) -> None:
        if self._is_server:
            self.run(f"TRUNCATE {', '.join(CLEARED)} RESTART IDENTITY")
        else:
            for table in CLEARED:
                self.run(f"DELETE FROM {table}")
        self.raise_floor(0)


class Reached:
    """A receiver that does what its name says, by way of the real one."""

    def __init__(self, way: str, receiver: Receiver, clock: ManualClock, settings: recovery.Settings) -> None:
        self.way, self.receiver, self.clock, self.settings = way, receiver, clock, settings

    def accept(self, reply_id: str, payload: str) -> object:
        """Answer, or go wrong."""
        if self.way == "slow":
            self.clock.advance(self.settings.delivery_lease_seconds or 0)
        if self.way in {"stores", "slow"}:
            return self.receiver.accept(reply_id, payload)
        if self.way == "loses the answer":
            self.receiver.accept(reply_id, payload)
            raise TimeoutError("ACK lost")
        if self.way in RAISED:
            raise RAISED[self.way]
        return {"answers another": Receipt("stored", "reply:other", duplicate=False), "answers yes": True}[self.way]


RAISED = {
    "refuses": recovery.Unauthorized("not for me"),
    "finds it invalid": recovery.InvalidEnvelope("not for me"),
    "breaks": RuntimeError("on fire \0 \udc80" + "x" * 3000),
}


def _ends_badly(connection: sa.Connection, reply_id: str, payload: str) -> object:
    return 1 / 0


EFFECTS: dict[Any, Callable[..., object]] = {"breaks": _ends_badly}


def _settings(knobs: Knobs) -> dict[str, Any]:
    return {
        one.name: _backoff(value) if isinstance(value, Wait) else value
        for one in fields(knobs)
        for value in (getattr(knobs, one.name),)
    }


def _backoff(wait: Wait) -> Backoff:
    return Backoff(wait.first_seconds, wait.factor, min(wait.cap_seconds, 3600.0))


def _class(kind: str) -> Any:
    found: Any = getattr(recovery, kind.removesuffix("*"))
    return type("Special", (found,), {}) if kind.endswith("*") else found


def _breaking(items: list[Any]) -> Iterator[Any]:
    yield from items
    raise RuntimeError("the source went away")


def plain(answer: Any) -> Any:
    """An answer in the shape of the model's: records by the name of their class, errors as Failure."""
    if isinstance(answer, BatchFailed):
        return Failure("BatchFailed", "", (plain(list(answer.acks)), answer.index, plain(answer.cause)))
    if isinstance(answer, Exception):
        # A class that is not for the public is what it is derived from.
        public = [base for base in type(answer).__mro__ if getattr(recovery, base.__name__, None) is base]
        return Failure((public or [type(answer)])[0].__name__, getattr(answer, "field", ""))
    if is_dataclass(answer) and not isinstance(answer, type):
        names = [one.name for one in fields(answer) if one.name != "seq"]
        return Thing(type(answer).__name__, {name: plain(getattr(answer, name)) for name in names})
    return type(answer)(plain(one) for one in answer) if type(answer) in {list, tuple} else answer
