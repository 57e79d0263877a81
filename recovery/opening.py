"""Opening a database: an engine that fits, a schema that fits, and nothing changed by looking."""

from __future__ import annotations

import sqlalchemy as sa

from recovery import backend
from recovery.errors import Misconfigured, SchemaMismatch
from recovery.schema import VERSION, Tables


def check(connection: sa.Connection, tables: Tables) -> None:
    """Raise SchemaMismatch or Misconfigured where this release cannot work with the database. Reads only."""
    found = version(connection, tables)
    if found is None:
        raise SchemaMismatch("the tables are missing; run: recovery migrate")
    if found < VERSION:
        raise SchemaMismatch(f"the tables are at {found}, and this release needs {VERSION}; run: recovery migrate")
    if found > VERSION:
        raise SchemaMismatch(f"the tables are at {found}, and this release only knows {VERSION}; upgrade recovery.")
    backend.of(connection).check_database(connection)


def version(connection: sa.Connection, tables: Tables) -> str | None:
    """The revision that the database is at; None where there is none."""
    if not sa.inspect(connection).has_table(tables.version.name):
        return None
    found = connection.execute(sa.select(tables.version.c.version_num)).scalars().all()
    if len(found) > 1:
        raise SchemaMismatch(f"{tables.version.name} holds {len(found)} rows, and one is right; restore a backup.")
    return found[0] if found else None


def prepared(engine: sa.Engine) -> sa.Engine:
    """The engine, if recovery can work with it. Raises Misconfigured."""
    given: object = engine
    if not isinstance(given, sa.Engine) or not backend.is_prepared(engine):
        raise Misconfigured("use an engine of open_engine(url), or give yours to prepare_engine before it connects.")
    backend.of(engine).check_engine(engine)
    return engine
