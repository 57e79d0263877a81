"""Run the ladder on one database: all or nothing, and safe when many processes do it at once.

Used by `recovery migrate`, which hands over the URL, and by plain `alembic upgrade head`, which takes it from
`-x url=…` or RECOVERY_URL (else sqlite:///recovery.db) and the prefix of the tables from `-x prefix=…`. It imports
nothing of recovery, so that an old step runs the same for ever.
"""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import context
from alembic.util import CommandError
from sqlalchemy.pool import NullPool

IN_THE_WAY = "there is already a table, view or index of a name that an upgrade would make; choose a table_prefix."
WAIT_SECONDS = 60
"""How long to stand behind another process that is upgrading the same database."""
DDL_LOCK_SECONDS = 2
"""A change that waits for a reader holds up every claim behind it: give up soon, and try again a little later."""
TRIES = 10
PREFIX = re.compile(r"((?!sqlite_)[a-z][a-z0-9_]{0,23})?\Z")
REFUSED = {
    "42P07": IN_THE_WAY,
    "42710": IN_THE_WAY,
    "42501": "this role may not make tables here; run the upgrade as one that has the right CREATE on the schema.",
    "3F000": "no schema of the role's search_path exists, so that there is none to make tables in.",
}
"""What PostgreSQL refuses for a reason outside of recovery, by SQLSTATE."""
ADVISORY_LOCK = 0x7265636F76657279  # "recovery" in ASCII


def target() -> tuple[sa.URL, str]:
    """The URL and the table prefix, from whoever runs the ladder."""
    given, extra = context.config.attributes, context.get_x_argument(as_dictionary=True)
    url = given.get("url") or extra.get("url") or os.environ.get("RECOVERY_URL") or "sqlite:///recovery.db"
    url = sa.make_url(url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    prefix = given.get("table_prefix") or extra.get("prefix") or ""
    if not PREFIX.match(prefix):
        raise CommandError("a prefix is lower-case letters, digits and _, at most 24 characters, not sqlite_…")
    return url, prefix


def configure(prefix: str, **where: Any) -> None:
    """Tell Alembic where to work, with a version table of our own and each run in one transaction."""
    context.configure(
        version_table=f"{prefix}recovery_version",
        transactional_ddl=True,
        table_prefix=prefix,
        **where,
    )


def print_statements() -> None:
    """`--sql`: print what would be sent; connect to nothing."""
    url, prefix = target()
    configure(prefix, dialect_name=url.get_backend_name(), literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def upgrade() -> None:
    """Upgrade a database, trying again while readers are in the way."""
    url, prefix = target()
    engine = sqlite_engine(url) if url.get_backend_name() == "sqlite" else postgresql_engine(url)
    until = time.monotonic() + WAIT_SECONDS
    try:
        for attempt in range(1, TRIES + 1):
            try:
                run(engine, prefix)
                return
            except sa.exc.DBAPIError as error:
                if sentence := refusal(error):
                    raise CommandError(sentence) from error
                given_up = attempt == TRIES or time.monotonic() > until
                if getattr(error.orig, "sqlstate", None) not in ("55P03", "40P01") or given_up:
                    raise
            time.sleep(random.uniform(0.1, 0.2 * attempt))
    finally:
        engine.dispose()


def refusal(error: sa.exc.DBAPIError) -> str | None:
    """What to say where the database refused a step for a reason that somebody can see and change."""
    state, said = getattr(error.orig, "sqlstate", None), str(error.orig)
    if state is None:  # SQLite has one code for all of these.
        return IN_THE_WAY if "already exists" in said or "there is already" in said else None
    return REFUSED.get(state)


def run(engine: sa.Engine, prefix: str) -> None:
    """One try: one transaction, begun with a lock that lets one process through at a time."""
    context.config.attributes["phase"] = "work"
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            set_wal(connection)
        with connection.begin():
            if engine.dialect.name == "postgresql":
                stand_in_line(connection)
            configure(prefix, connection=connection)
            with context.begin_transaction():
                context.run_migrations()
            if engine.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                raise CommandError("the upgrade would leave rows that refer to nothing; it was taken back.")
            context.config.attributes["phase"] = "commit"  # Whoever is not answered from here on cannot know.


def stand_in_line(connection: sa.Connection) -> None:
    """Wait for other upgrades first; only then bound the waits for tables, whatever the role has set."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{DDL_LOCK_SECONDS}s'")


def postgresql_engine(url: sa.URL) -> sa.Engine:
    """At READ COMMITTED whatever the default is: the version must be read as it is after the wait."""
    return sa.create_engine(
        url,
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
        connect_args={"prepare_threshold": None, "connect_timeout": 10},
    )


def sqlite_engine(url: sa.URL) -> sa.Engine:
    """A file that is made readable by its owner only, and BEGIN IMMEDIATE sent by us."""
    path = Path(url.database or "").absolute()
    if not url.database or ":memory:" in url.database:
        raise CommandError("a database in memory dies with its process; name a file: sqlite:///file.db.")
    if not path.parent.is_dir():
        raise CommandError("the folder of the database file does not exist; make it first.")
    if url.query.get("mode") == "ro":
        raise CommandError("mode=ro in the URL is for reading, and an upgrade writes; leave it out.")
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    module = context.config.attributes.get("sqlite_module")
    plain = sa.URL.create("sqlite+pysqlite", database=str(path))
    engine = sa.create_engine(plain, poolclass=NullPool, **({} if module is None else {"module": module}))

    @sa.event.listens_for(engine, "connect")
    def connected(driver: Any, _record: Any) -> None:
        driver.isolation_level = None
        driver.execute(f"PRAGMA busy_timeout = {WAIT_SECONDS * 1000}")
        # Rebuilding a table that others refer to would delete their rows; checked before COMMIT instead.
        driver.execute("PRAGMA foreign_keys = OFF")
        driver.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def set_wal(connection: sa.Connection) -> None:
    """Write-ahead logging is a mark in the file. Setting it fails at once while somebody writes: ask again."""
    driver: Any = connection.connection.driver_connection
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            mode = driver.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except Exception as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (5, 6) or time.monotonic() > until:
                raise
        else:
            if mode == "wal":
                return
            raise CommandError(f"this file cannot be put in WAL mode (it stays in {mode}): is it on a local disk?")
        time.sleep(random.uniform(0.005, 0.05))


if context.is_offline_mode():
    print_statements()
else:
    upgrade()
