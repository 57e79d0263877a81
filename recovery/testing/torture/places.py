"""Throw-away places: a new file beside the user's, or a new schema in the user's database. Nothing else is touched."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from recovery.backend import Phase, for_url, is_database_error, open_engine, parse, translate
from recovery.errors import Misconfigured
from recovery.migrate import migrate
from recovery.testing.reading import plain
from recovery.testing.torture.disk import small_disk
from recovery.testing.torture.plan import OWN_EFFECTS

NAME: Final = "recovery_torture"


@dataclass(frozen=True, slots=True)
class Places:
    """The URLs of a queue and a receiver that are there for one torture.

    `name` is what its connections are called; `small_disk` the folder of a file system that can be filled up.
    """

    queue_url: str
    receiver_url: str
    name: str
    small_disk: Path | None = None

    @property
    def is_server(self) -> bool:
        """Whether a server keeps them."""
        return not self.queue_url.startswith("sqlite")


@contextlib.contextmanager
def throw_away(url: str | None, *, full_disk: bool = False) -> Iterator[Places]:
    """Make both, and drop them at the end. Without a URL they are files in a temporary folder.

    With `full_disk` the files are on a small file system of their own. Raises Misconfigured or Unavailable where they
    cannot be made.
    """
    parsed = parse("sqlite:///recovery.db" if url is None else url)
    is_file = parsed.get_backend_name() == "sqlite"
    if full_disk and not is_file:
        raise Misconfigured("--full-disk is for SQLite: whose disk a server fills is not ours to say.")
    beside = url is not None
    with _files(parsed, beside=beside, full_disk=full_disk) if is_file else _schemas(parsed) as places:
        for one in (places.queue_url, places.receiver_url):
            migrate(one)
        _run(places.receiver_url, f"CREATE TABLE {OWN_EFFECTS} (reply_id TEXT NOT NULL)")
        yield places


@contextlib.contextmanager
def _files(url: sa.URL, *, beside: bool, full_disk: bool) -> Iterator[Places]:
    near = Path(url.database).absolute().parent if beside and url.database else None
    if near is not None and not near.is_dir():
        raise Misconfigured("the folder of the database file is missing.")
    folder = Path(tempfile.mkdtemp(prefix="recovery-torture-", dir=near))
    try:
        with small_disk(folder) if full_disk else contextlib.nullcontext():
            queue, receiver = (_shown(url.set(database=str(folder / name))) for name in ("queue.db", "receiver.db"))
            yield Places(queue, receiver, NAME, folder if full_disk else None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _schemas(url: sa.URL) -> Iterator[Places]:
    name = f"{NAME}_{secrets.token_hex(4)}"
    queue, receiver = name, f"{name}_receiver"
    _run(_shown(url), f"CREATE SCHEMA {queue}", f"CREATE SCHEMA {receiver}")
    try:
        yield Places(_in_schema(url, queue, name), _in_schema(url, receiver, name), name)
    finally:
        # The connections of killed actors may still hold locks.
        gone = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"  # noqa: S608
        _run(_shown(url), gone, f"DROP SCHEMA {queue} CASCADE", f"DROP SCHEMA {receiver} CASCADE")


def _in_schema(url: sa.URL, schema: str, name: str) -> str:
    before: Any = url.query.get("options", "")
    options = f"{before} -c search_path={schema}".strip()
    return _shown(url.update_query_dict({"options": options, "application_name": name}))


def _shown(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


def _run(url: str, *statements: str) -> None:
    engine = open_engine(url, pool_size=1)
    phase: Phase = "connect"
    try:
        with engine.begin() as connection:
            phase = "work"
            for statement in statements:
                connection.exec_driver_sql(statement)
    except Exception as error:
        if not is_database_error(error):
            raise
        raise translate(for_url(engine.url), error, phase) from error
    finally:
        engine.dispose()


def through(url: str, port: int) -> str:
    """The same database by way of a proxy on this machine, which cannot read what is encrypted."""
    parsed = sa.make_url(url)
    query = {name: value for name, value in parsed.query.items() if name not in ("host", "port", "hostaddr")}
    query |= {"sslmode": "disable", "gssencmode": "disable"}
    return _shown(parsed.set(host="127.0.0.1", port=port, query=query))


def address(url: str) -> tuple[str, int] | None:
    """The host and port at which a server answers without encryption; a host that begins with / is a socket's folder.

    None where it does not: then no proxy can stand between.
    """
    import psycopg

    parsed = sa.make_url(url).update_query_dict({"sslmode": "disable", "gssencmode": "disable"})
    try:
        with psycopg.connect(plain(parsed)) as connection:
            return connection.info.host, connection.info.port
    except psycopg.OperationalError:
        return None


SESSIONS: Final = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid() ORDER BY backend_start"
)


def terminate_one(url: str, name: str, chance: float) -> bool:
    """End one of the sessions of that name, chosen by a number from 0 to 1, as an administrator does."""
    import psycopg

    try:
        with psycopg.connect(plain(sa.make_url(url)), autocommit=True) as connection:
            found = connection.execute(SESSIONS, (name,)).fetchall()
            if not found:
                return False
            connection.execute("SELECT pg_terminate_backend(%s)", (found[int(chance * len(found))][0],))
            return True
    except psycopg.OperationalError:
        return False
