"""Inserting rows, one or a thousand: one statement where arrays can be had, else one prepared statement over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from recovery.backend import Backend, change_rows, of, param, unnested


def add(connection: sa.Connection, table: sa.Table, given: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows in their order; all name the same columns."""
    if not given:
        return
    backend = of(connection)
    names = tuple(given[0])
    change_rows(connection, _add, (table, names, backend), given, names)


def adding(table: sa.Table, names: tuple[str, ...], backend: Backend) -> tuple[Any, tuple[Any, ...]]:
    """What `add` is going to send for rows with these columns, by its name."""
    return _add, (table, names, backend)


def _add(table: sa.Table, names: tuple[str, ...], backend: Backend) -> sa.Insert:
    if not backend.composes:
        counted = backend.arrival(table) if "arrival" in table.c else {}
        values = {name: param(name, table.c[name].type) for name in names}
        return sa.insert(table).values(**values, **counted).inline()
    source = unnested("given", **{name: table.c[name].type for name in names})
    chosen = sa.select(*(source.c[name] for name in names)).order_by(source.c.ord)
    return sa.insert(table).from_select(list(names), chosen).inline()
