"""What the library sends to the database: counted, or taped so that it can be played again without the library.

A probe stands between the library and its driver. It is never in place while time is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import sqlalchemy as sa

FRAME = re.compile(r"\s*(BEGIN|COMMIT|ROLLBACK|SET|PRAGMA)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the driver: `execute`, `executemany`, `commit` or `rollback`; and whether it was prepared for it."""

    what: str
    text: str = ""
    parameters: Any = None
    prepared: bool = False


@dataclass(slots=True)
class Tape:
    """Everything that was sent, in order, and how much that was.

    `statements` leaves out what frames a transaction (BEGIN and its settings, COMMIT); `messages` counts everything
    that went to the database.
    """

    calls: list[Call] = field(default_factory=list)
    statements: int = 0
    messages: int = 0
    commits: int = 0

    def add(self, call: Call, *, committed: bool) -> None:
        """Note one call."""
        self.calls.append(call)
        self.messages += 1
        self.commits += committed
        if call.what == "executemany":
            self.statements += len(call.parameters)
        elif call.what == "execute" and not FRAME.match(call.text):
            self.statements += 1

    def clear(self) -> None:
        """Forget what was noted so far."""
        self.calls.clear()
        self.statements = self.messages = self.commits = 0

    def kept(self) -> Tape:
        """A copy that nothing is added to any more."""
        return Tape(list(self.calls), self.statements, self.messages, self.commits)


@contextmanager
def taped(engine: sa.Engine) -> Iterator[Tape]:
    """Tape what goes over this engine's connections. New connections are made for it, and thrown away afterwards."""
    tape = Tape()

    def replace(driver: Any, record: Any) -> None:
        record.dbapi_connection = _Connection(driver, tape)

    engine.dispose()
    sa.event.listen(engine, "connect", replace)
    try:
        yield tape
    finally:
        sa.event.remove(engine, "connect", replace)
        engine.dispose()


class _Wrapped:
    """Passes everything on but what a subclass defines."""

    _inner: Any
    _tape: Tape

    def __init__(self, inner: Any, tape: Tape) -> None:
        vars(self).update(_inner=inner, _tape=tape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)


class _Connection(_Wrapped):
    """A driver's connection."""

    def cursor(self, *args: Any, **kwargs: Any) -> _Cursor:
        return _Cursor(self._inner.cursor(*args, **kwargs), self._tape, self._inner)

    def execute(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        return self.cursor().execute(text, *args, **kwargs)

    def commit(self) -> None:
        with _noted(self._inner, self._tape, Call("commit")):
            self._inner.commit()

    def rollback(self) -> None:
        with _noted(self._inner, self._tape, Call("rollback")):
            self._inner.rollback()


class _Cursor(_Wrapped):
    """A driver's cursor."""

    _connection: Any

    def __init__(self, inner: Any, tape: Tape, connection: Any) -> None:
        super().__init__(inner, tape)
        vars(self).update(_connection=connection)

    def execute(self, text: Any, parameters: Any = None, *args: Any, **kwargs: Any) -> Any:
        call = Call("execute", str(text), _kept(parameters), prepares(self._connection))
        with _noted(self._connection, self._tape, call):
            self._inner.execute(text, *(() if parameters is None else (parameters,)), *args, **kwargs)
        return self

    def executemany(self, text: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        rows = [_kept(row) for row in parameters]
        with _noted(self._connection, self._tape, Call("executemany", str(text), rows)):
            self._inner.executemany(text, rows, *args, **kwargs)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.close()


@contextmanager
def _noted(connection: Any, tape: Tape, call: Call) -> Iterator[None]:
    """Note a call, and whether it made something durable: a transaction ended, or there was none around it."""
    before = in_transaction(connection)
    yield
    after = in_transaction(connection)
    alone = not before and call.what in ("execute", "executemany") and not FRAME.match(call.text)
    ended = before and call.what != "rollback" and not call.text.lstrip().upper().startswith("ROLLBACK")
    tape.add(call, committed=not after and (alone or ended))


def _kept(parameters: Any) -> Any:
    return dict(parameters) if isinstance(parameters, dict) else tuple(parameters) if parameters is not None else None


def in_transaction(connection: Any) -> bool:
    """Whether a driver's connection stands in a transaction."""
    if hasattr(connection, "in_transaction"):
        return bool(connection.in_transaction)
    return int(connection.info.transaction_status) != 0


def prepares(connection: Any) -> bool:
    """Whether a driver's connection prepares what it is given, as psycopg does where it is told to."""
    return getattr(connection, "prepare_threshold", None) is not None


def moved(calls: Sequence[Call], old: str, new: str) -> list[Call]:
    """The same calls for another set of tables: the prefix is exchanged in every text."""
    return [replace(call, text=call.text.replace(old, new) if old else call.text) for call in calls]


def play(connection: Any, cursor: Any, calls: Sequence[Call]) -> None:
    """Send the calls with nothing but the driver, and fetch what they answer."""
    for call in calls:
        if call.what == "execute":
            if call.prepared or prepares(connection):
                connection.prepare_threshold = 0 if call.prepared else None
            if call.parameters is None:
                cursor.execute(call.text)
            else:
                cursor.execute(call.text, call.parameters)
            if cursor.description is not None:
                cursor.fetchall()
        elif call.what == "executemany":
            cursor.executemany(call.text, call.parameters)
        elif call.what == "commit":
            connection.commit()
        else:
            connection.rollback()
