"""Fixtures of this folder: PgBouncer in transaction mode, and disks that are nearly full. They need root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from recovery import migrate
from tests.plugins.pg_binaries import Account, as_account
from tests.plugins.pg_server import OwnServer, PostgresServer, new_folder

PORT = 6432
"""The number in the name of the socket; every PgBouncer here has a folder of its own."""
SERVER_CONNECTIONS = 2
START_SECONDS = 10


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this folder, so that none is run by an ordinary `pytest`."""
    item.add_marker(pytest.mark.machine)


class PgBouncer:
    """PgBouncer in transaction mode before a server: two connections to each database, for any number of clients.

    Nothing is forgiven: start-up settings that it does not know are refused, as it does by default.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._account = Account.for_server()
        self._folder = new_folder(self._account, memory=False)
        target = sa.make_url(server.admin_url)
        (self._folder / "pgbouncer.ini").write_text(
            "[databases]\n"
            f"* = host={target.host} port={target.port or 5432} user={target.username} password={target.password}\n"
            "[pgbouncer]\n"
            f"unix_socket_dir = {self._folder}\nlisten_port = {PORT}\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {SERVER_CONNECTIONS}\n"
        )
        if self._account is not None:
            self._account.owns(self._folder)

    def start(self) -> None:
        """Start it, and return when its socket is there."""
        with (self._folder / "log").open("wb") as log:
            self._guard = subprocess.Popen(
                # It ends with the input of this shell, which comes when our process ends, however it ends.
                [
                    "/bin/sh",
                    "-c",
                    '"$0" "$1" <&- & read -r line; kill -9 $!',
                    program(),
                    self._folder / "pgbouncer.ini",
                ],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_account(self._account),
            )
        end = time.monotonic() + START_SECONDS
        while not (self._folder / f".s.PGSQL.{PORT}").exists():
            assert time.monotonic() < end, (self._folder / "log").read_text()
            time.sleep(0.02)

    def close(self) -> None:
        """End it, and remove its folder."""
        self._guard.communicate(b"\n", timeout=60)
        shutil.rmtree(self._folder)

    def url(self, direct: str) -> str:
        """The way through PgBouncer to a database of the server."""
        return f"postgresql://anybody@/{sa.make_url(direct).database}?host={self._folder}&port={PORT}"


def program() -> str:
    """Where PgBouncer is; Debian puts it where not everybody looks."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert found is not None, "these tests need PgBouncer: apt-get install pgbouncer"
    return found


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """PgBouncer before the server of this run."""
    bouncer = PgBouncer(postgres_server)
    bouncer.start()
    yield bouncer
    bouncer.close()


class Disk:
    """A small disk in memory, with a ballast that can be taken away."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._ballast = folder, folder / "ballast"

    def load(self, size_bytes: int) -> None:
        """Put down a ballast of this size."""
        self._ballast.write_bytes(b"\0" * size_bytes)

    def make_room(self) -> None:
        """Take the ballast away."""
        self._ballast.unlink()

    def free_bytes(self) -> int:
        """How much still goes on it."""
        return shutil.disk_usage(self.folder).free


@pytest.fixture
def new_disk() -> Iterator[Callable[..., Disk]]:
    """Mounts small disks, each of a size in KiB, which are gone after the test."""
    with contextlib.ExitStack() as at_the_end:

        def make(size_kib: int) -> Disk:
            account = Account.for_server()
            assert account is not None, "mounting a disk needs root"
            folder = new_folder(account, memory=False)
            at_the_end.callback(folder.rmdir)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", folder], check=True)
            at_the_end.callback(subprocess.check_call, ["umount", "--lazy", folder])
            account.owns(folder)
            return Disk(folder)

        yield make


@pytest.fixture
def tablespace(new_disk: Callable[..., Disk], private_postgres: OwnServer) -> Iterator[tuple[str, Disk]]:
    """The URL of a migrated database whose tables lie on a small disk, and that disk."""
    disk = new_disk(24 * 1024)
    name = disk.folder.name.replace("-", "_")
    place = disk.folder / "tables"
    place.mkdir()
    account = Account.for_server()
    assert account is not None
    account.owns(place)
    run = psycopg.sql.SQL("CREATE TABLESPACE {} LOCATION {}")
    private_postgres.administer(run.format(psycopg.sql.Identifier(name), psycopg.sql.Literal(str(place))))
    url = private_postgres.create_database()
    move = psycopg.sql.SQL("ALTER DATABASE {} SET TABLESPACE {}")
    database = psycopg.sql.Identifier(str(sa.make_url(url).database))
    private_postgres.administer(move.format(database, psycopg.sql.Identifier(name)))
    migrate(url)
    yield url, disk
    private_postgres.drop_database(url)
    private_postgres.administer(psycopg.sql.SQL("DROP TABLESPACE {}").format(psycopg.sql.Identifier(name)))
