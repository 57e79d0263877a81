"""Run the ladder: make or upgrade the tables of a database, all or nothing, however many processes do it at once.

The steps stand in `migrations/`, which imports nothing of recovery and is what `alembic upgrade head` runs too.
Alembic is imported here only when it is needed: opening a queue costs nothing of it.
"""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from recovery import backend
from recovery.backend import Bounds, Phase
from recovery.errors import Busy, CommitUnknown, Misconfigured, ReadOnly, RecoveryError, SchemaMismatch, Unavailable
from recovery.opening import check
from recovery.schema import VERSION, tables
from recovery.transactions import READ, Transactions

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["ladder", "migrate", "migration_sql"]


def migrate(url: str | sa.URL, *, table_prefix: str = "") -> str:
    """Bring a database to this release's schema and return the revision. Makes a missing SQLite file (mode 0600).

    Safe to run from several processes at once. Raises Misconfigured, SchemaMismatch, Unavailable, Busy, ReadOnly or
    StatementFailed; then nothing was changed. After CommitUnknown it was, or it was not: run it again.
    """
    tables(table_prefix)
    parsed = backend.parse(url)
    engine = backend.open_engine(parsed, pool_size=1)  # Connects to nothing yet, and names a driver that is missing.
    config = _config(table_prefix, io.StringIO(), url=parsed, sqlite_module=backend.sqlite_module(parsed))
    try:
        _command("upgrade", config, sql=False)
    except Exception as error:
        raise _explained(error, parsed, config.attributes.get("phase", "work")) from error
    try:
        Transactions(engine, Bounds()).run(lambda connection: check(connection, tables(table_prefix)), READ)
    except (Unavailable, Busy) as error:
        raise CommitUnknown(
            "the tables were upgraded, and then could not be looked at; run: recovery migrate"
        ) from error
    finally:
        engine.dispose()
    return VERSION


def migration_sql(url: str | sa.URL, *, table_prefix: str = "") -> str:
    """The statements that make the tables from nothing, as text. Connects to nothing."""
    tables(table_prefix)
    out = io.StringIO()
    _command("upgrade", _config(table_prefix, out, url=backend.parse(url)), sql=True)
    return out.getvalue()


def _explained(error: Exception, url: sa.URL, phase: Phase) -> Exception:
    """The error of the contract for what went wrong on the ladder."""
    from alembic.util import CommandError

    if isinstance(error, CommandError):
        if str(error).startswith("mode=ro"):
            return ReadOnly(str(error))
        if "locate revision" in str(error):
            return SchemaMismatch("recovery_version has a revision that this release does not know; upgrade recovery.")
        return Misconfigured(str(error))
    if backend.is_database_error(error):
        failure = backend.translate(backend.for_url(url), error, phase)
        return backend.translate(backend.for_url(url), error, "connect") if _unreached(failure) else failure
    if isinstance(error, OSError):
        if _is_write_protected(error, url):
            return ReadOnly(f"the database file is write-protected: {error.strerror}.")
        return Misconfigured(f"the database file cannot be made or opened: {error.strerror}.")
    return error


def _is_write_protected(error: OSError, url: sa.URL) -> bool:
    file = str(Path(url.database or "").absolute())
    refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    return refused and str(error.filename) == file and os.access(file, os.F_OK)


def _unreached(failure: RecoveryError) -> bool:
    return isinstance(failure, Unavailable) and "connection was lost" in str(failure)


def _command(name: str, config: Config, *, sql: bool) -> None:
    from alembic import command

    getattr(command, name)(config, "head", sql=sql)


def _config(table_prefix: str, out: io.StringIO, **attributes: Any) -> Config:
    from alembic.config import Config

    config = Config(output_buffer=out, stdout=io.StringIO())
    # A percent sign in a path would be read as an interpolation.
    config.set_main_option("script_location", str(ladder()).replace("%", "%%"))
    config.attributes.update(attributes, table_prefix=table_prefix)
    return config


def ladder() -> Path:
    """The folder of the migrations: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "migrations", here.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise Misconfigured("the migrations are missing from this installation; install recovery again.")
