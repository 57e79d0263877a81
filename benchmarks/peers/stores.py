"""A fresh database for every run: a new one on the PostgreSQL server, or a new file."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from benchmarks.peers.environments import NotAvailable

_numbers = itertools.count()


@contextmanager
def store(backend: str, url: str | None, files: Path | None) -> Iterator[str]:
    """Give the URL of an empty database, and remove it afterwards."""
    if backend == "sqlite":
        with tempfile.TemporaryDirectory(prefix="peers-", dir=files) as folder:
            yield f"sqlite:///{folder}/queue.db"
    elif url is None:
        raise NotAvailable("no PostgreSQL server was given (--url)")
    else:
        with _database(sa.make_url(url)) as fresh:
            yield fresh


@contextmanager
def _database(server: sa.URL) -> Iterator[str]:
    name = f"peers_{os.getpid()}_{next(_numbers)}"
    engine = sa.create_engine(
        server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    _said(engine, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    try:
        yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    finally:
        _said(engine, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _said(engine: sa.Engine, statement: str) -> None:
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
    except sa.exc.DBAPIError as error:
        raise NotAvailable(f"the server refused: {str(error.orig).splitlines()[0]}") from error
