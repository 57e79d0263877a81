"""Fill tables fast: one task goes through the front door, and is then copied by the database itself, set by set.

A copy is therefore what the library would have stored, in every table, whatever the schema is.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from recovery import Envelope

from .targets import AUTH, PRINCIPAL, Place

CHUNK_ROWS = 100_000
DEADLINE_SECONDS = 30 * 24 * 3600.0
FUTURE_SECONDS = 7 * 24 * 3600.0
PAST_SECONDS = 3600.0
RESULT = {"ok": True}
CLAIMED = ("done", "expired")
"""The kinds whose one original has to be claimed."""

_IDS = {
    "postgresql": "encode(sha256(convert_to(CAST(:salt AS text) || CAST(n.n AS text), 'UTF8')), 'hex')",
    "sqlite": "bench_sha256(:salt || n.n)",
}
_NUMBERS = {
    "postgresql": ("", "generate_series(CAST(:low AS bigint), CAST(:high AS bigint)) AS n(n)"),
    "sqlite": ("WITH RECURSIVE n(n) AS (SELECT :low UNION ALL SELECT n + 1 FROM n WHERE n < :high) ", "n"),
}


@dataclass(frozen=True, slots=True)
class Fill:
    """So many tasks of one kind: pending, done, future (not due for a week) or expired (running, lease over).

    The same `salt` gives the same task ids in the same order, in every place.
    """

    kind: str
    count: int
    salt: str = "m"
    payload_bytes: int = 0
    overrides: dict[str, str] = field(default_factory=dict)


def envelope(message_id: str, payload_bytes: int = 0, **more: Any) -> Envelope:
    """A message of the benchmark's own principal, its payload of about so many bytes."""
    payload = {"n": 1} | ({"text": "x" * payload_bytes} if payload_bytes else {})
    return Envelope(message_id, PRINCIPAL, payload, time.time() + DEADLINE_SECONDS, **more)


def fill(place: Place, *fills: Fill) -> None:
    """Make every fill, then let the database look at what it has now.

    Only pending and future tasks may be added to a place where there are tasks already.
    """
    # What has to be claimed on its way goes first, while there is nothing else that could be claimed instead.
    wanted = sorted((one for one in fills if one.count), key=lambda one: one.kind not in CLAIMED)
    made = [(one, _template(place, one)) for one in wanted]
    engine = place.engine()
    try:
        for one, template in made:
            _fill(engine, place, one, template)
        with engine.begin() as connection:
            for table in reversed(place.tables.metadata.sorted_tables):
                if "task_id" in table.c:
                    connection.execute(sa.delete(table).where(table.c.task_id.in_([made_id for _, made_id in made])))
    finally:
        engine.dispose()
    analyse(place)


def _fill(engine: sa.Engine, place: Place, one: Fill, template: str) -> None:
    for low in range(1, one.count + 1, CHUNK_ROWS):
        with engine.begin() as connection:
            _register(connection)
            _copy(connection, place, one, template, low, min(low + CHUNK_ROWS - 1, one.count))


def _template(place: Place, one: Fill) -> str:
    """The id of one task that the library itself brought to where the copies shall be."""
    with place.queue() as queue:
        ack = queue.receive(envelope(f"template-{one.kind}-{one.salt}", one.payload_bytes), AUTH)
        if one.kind in CLAIMED:
            claim = queue.claim("template")
            assert claim is not None
            assert claim.task_id == ack.task_id
            if one.kind == "done":
                queue.finish(claim, RESULT)
    return ack.task_id


def _overrides(one: Fill) -> dict[str, str]:
    now = time.time()
    due = {"available_at": f"{now - PAST_SECONDS:.3f}", "received_at": f"{now - PAST_SECONDS:.3f}"}
    kinds = {
        "future": {"available_at": f"{now + FUTURE_SECONDS:.3f}"},
        "expired": {"lease_until": f"{now - 1:.3f}"},
    }
    return due | kinds.get(one.kind, {}) | one.overrides


def _copy(connection: sa.Connection, place: Place, one: Fill, template: str, low: int, high: int) -> None:
    """Copy the template's rows of every table, numbers `low` to `high`."""
    tables = place.tables
    values = {"salt": one.salt, "template": template, "low": low, "high": high}
    special = {
        "inbox": {"message_id": "CAST(:salt AS text) || CAST(n.n AS text)"},
        "tasks": _overrides(one),
        "outbox": {"reply_id": f"'reply:' || {_IDS[place.backend]}", "payload": _renamed(place.backend)},
        "journal": {},
    }
    for name, changed in special.items():
        table: sa.Table = getattr(tables, name)
        statement = _insert(table, place.backend, changed)
        used = {key: value for key, value in values.items() if f":{key}" in statement}
        connection.execute(sa.text(statement), used)


def _renamed(backend: str) -> str:
    return f"replace(t.payload, CAST(:template AS text), {_IDS[backend]})"


def _insert(table: sa.Table, backend: str, changed: dict[str, str]) -> str:
    counted = {"seq", "arrival"} if backend == "postgresql" else {"seq"}
    columns = [column.name for column in table.c if column.name not in counted]
    given = {name: f"t.{name}" for name in columns} | {name: text for name, text in changed.items() if name in columns}
    given["task_id"] = _IDS[backend]
    if "arrival" in given:
        given["arrival"] = f"(SELECT coalesce(max(arrival), 0) FROM {table.name}) + n.n - :low + 1"
    head, numbers = _NUMBERS[backend]
    return (
        f"INSERT INTO {table.name} ({', '.join(columns)}) {head}SELECT {', '.join(given[name] for name in columns)} "
        f"FROM {numbers} CROSS JOIN {table.name} t WHERE t.task_id = :template"
    )


def _register(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function("bench_sha256", 1, _sha256, deterministic=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def analyse(place: Place) -> None:
    """Leave the tables as a database that has been running for a while has them: statistics, no dead rows, no log."""
    engine = place.engine()
    driver: Any = engine.raw_connection()
    try:
        if place.backend == "postgresql":
            driver.driver_connection.autocommit = True
        cursor = driver.cursor()
        for statement in _after_filling(place):
            cursor.execute(statement)
        cursor.close()
    finally:
        driver.detach()
        driver.close()
        engine.dispose()


def _after_filling(place: Place) -> list[str]:
    if place.backend == "sqlite":
        return ["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"]
    return [f"VACUUM (ANALYZE) {table.name}" for table in place.tables.metadata.sorted_tables]
