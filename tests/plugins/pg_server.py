"""A PostgreSQL server for tests: one that is already there, or one of our own, with the same interface.

Usable without pytest, from the checkout: `with obtain_postgres() as server: print(server.create_database())`.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, Self

import psycopg
import sqlalchemy as sa
from psycopg import sql

from tests.plugins.pg_binaries import THREE_WAYS, Account, Binaries, NoPostgres, as_account, found

SERVER_VARIABLE = "RECOVERY_TEST_POSTGRES_URL"
SOCKET_FOLDER_BYTES_MAX = 85
"""The name of a Unix socket ends at 107 bytes; in a deeper folder the server listens on TCP alone."""
LOG_CHARACTERS_MAX = 2000
FIRST_WITH_STRATEGIES = 15
NOT_DURABLE = ("fsync=off", "full_page_writes=off")
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 2 * 1024**3
"""A database of the smallest kind takes 8 MB; a container has 64 MB of this memory unless it was given more."""
PORT_TRIES = 3
MAX_CONNECTIONS = 200


class PostgresServer:
    """A server on which databases can be made: `admin_url` leads to one whose role may."""

    can_restart = False
    _copying: LiteralString = ""

    def __init__(self, admin_url: str, source: str) -> None:
        self.admin_url = admin_url
        self.source = source
        self._prefix = f"recovery_test_{os.getpid()}_{secrets.token_hex(3)}"
        self._numbers = itertools.count(1)
        self._templates: dict[str, str] = {}
        self._made: set[str] = set()

    def url(self, database: str) -> str:
        """The SQLAlchemy URL of a database on this server, password and all."""
        return sa.make_url(self.admin_url).set(database=database).render_as_string(hide_password=False)

    def create_database(self, template: str | None = None) -> str:
        """The URL of a fresh database: empty, or a copy of `template`, a name that `template_database` returned."""
        name = f"{self._prefix}_{next(self._numbers)}"
        encoding = "ENCODING 'UTF8'" if template is None else ""
        statement = sql.SQL(f"CREATE DATABASE {{}} TEMPLATE {{}} {self._copying} {encoding}")
        self.administer(statement.format(sql.Identifier(name), sql.Identifier(template or "template0")))
        self._made.add(name)
        return self.url(name)

    def template_database(self, key: str, prepare: Callable[[str], object]) -> str:
        """The name of a database that `prepare(url)` filled, once per server and key, to be copied from then on.

        `prepare` must close its connections: PostgreSQL copies only a database that nobody is using.
        """
        if key not in self._templates:
            url = self.create_database()
            prepare(url)
            self._templates[key] = str(sa.make_url(url).database)
        return self._templates[key]

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made, cutting off whoever is still connected."""
        name = str(sa.make_url(url).database)
        self.administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        self._made.discard(name)

    def version(self) -> str:
        """What the server calls itself, such as 15.18."""
        row = self.administer(sql.SQL("SELECT split_part(current_setting('server_version'), ' ', 1)"))
        return str(row[0])

    def administer(self, statement: sql.SQL | sql.Composed) -> Any:
        """Run one statement outside a transaction on the admin database, and return its first row, if it has any."""
        url = sa.make_url(self.admin_url)
        where = url.translate_connect_args(username="user", database="dbname") | dict(url.query)
        with psycopg.connect(**where, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchone() if cursor.description else None

    def restart(self) -> None:
        """Stop at a quiet moment and start again, at the same address."""
        raise NotImplementedError(f"this test restarts the server, and {self.source} is not ours to restart")

    def close(self) -> None:
        """Leave the server as it was found."""
        for name in sorted(self._made):
            self.drop_database(self.url(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OwnServer(PostgresServer):
    """A server that runs below a folder of ours until `close`, or until this process ends, however it ends."""

    can_restart = True

    def __init__(self, binaries: Binaries, account: Account | None, directory: Path, *, durable: bool) -> None:
        super().__init__("", binaries.source)
        self.directory, self.port = directory, 0
        self._binaries, self._account, self._durable = binaries, account, durable
        self._data, self._log = directory / "data", directory / "log"
        self._guard: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Make the cluster and start it for the first time."""
        self._guard = self._guarded()
        password = self._make_cluster()
        for tries_left in reversed(range(PORT_TRIES)):
            # The port was free a moment ago; somebody may be quicker than PostgreSQL, so try more than one.
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self.port = int(probe.getsockname()[1])
            self.admin_url = f"postgresql://recovery:{password}@127.0.0.1:{self.port}/postgres"
            try:
                self.start()
                break
            except NoPostgres:
                if not tries_left:
                    raise
        # Copying files begins with a checkpoint, which costs nothing here and halves the time of a new database.
        if not self._durable and int(self.version().split(".")[0]) >= FIRST_WITH_STRATEGIES:
            self._copying = "STRATEGY file_copy"

    def start(self) -> None:
        """Start again after `stop` or `stop_immediate`, at the same address; returns when it accepts connections."""
        try:
            self._ctl("start", "--wait", "--timeout=60", f"--log={self._log}", f"--options={self._settings()}")
        except NoPostgres as error:
            log = self._log.read_text(errors="replace")[-LOG_CHARACTERS_MAX:] if self._log.exists() else ""
            raise NoPostgres(f"{error}\n{log}") from error

    def stop(self) -> None:
        """Stop properly but without waiting for anybody: open transactions are rolled back."""
        self._ctl("stop", "--mode=fast", "--wait")

    def stop_immediate(self) -> None:
        """Stop as a crash would: nothing more is written, and the next start recovers from the log."""
        self._ctl("stop", "--mode=immediate", "--wait")

    def restart(self) -> None:
        """Stop properly and start again, at the same address."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove its folder: the guard's last act, only earlier."""
        if self._guard is not None:
            self._guard.communicate(b"\n", timeout=60)
        # The guard emptied it, but where the parent is ours alone another user cannot take the folder itself away.
        shutil.rmtree(self.directory, ignore_errors=True)

    def _ctl(self, verb: str, *arguments: str) -> None:
        self._run("pg_ctl", verb, f"--pgdata={self._data}", "--silent", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        self._binaries.run(program, *arguments, account=self._account, cwd=self.directory)

    def _make_cluster(self) -> str:
        """Run initdb with a random password, which every connection must give, and return it.

        The locale is C, the only one that every build and every machine has.
        """
        password = secrets.token_hex(16)
        file = self.directory / "password"
        file.write_text(password)
        if self._account is not None:
            self._account.owns(file)
        who = ("--username=recovery", "--auth=scram-sha-256", f"--pwfile={file}")
        self._run("initdb", f"--pgdata={self._data}", *who, "--encoding=UTF8", "--no-locale", "--no-sync")
        file.unlink()
        return password

    def _settings(self) -> str:
        directory = os.fspath(self.directory)
        settings = (
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={directory if len(os.fsencode(directory)) <= SOCKET_FOLDER_BYTES_MAX else ''}",
            f"max_connections={MAX_CONNECTIONS}",
            *(() if self._durable else NOT_DURABLE),
        )
        return " ".join(f"-c {shlex.quote(setting)}" for setting in settings)

    def _guarded(self) -> subprocess.Popen[bytes]:
        """A shell that waits for a line, or for the end of its input, which comes when this process ends (kill -9 too).

        Then it stops the server and removes the folder. A session of its own keeps Ctrl-C away from it.
        """
        script = 'read -r line; "$0" stop --pgdata="$1/data" --mode=immediate --silent; rm -rf "$1"'
        return subprocess.Popen(
            ["/bin/sh", "-c", script, self._binaries.folder / "pg_ctl", self.directory],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **as_account(self._account),
        )


def start_postgres(binaries: Binaries, directory: Path | None = None, *, durable: bool = False) -> OwnServer:
    """A new server of our own, in an empty folder that it removes when it is closed.

    A server for tests lives in memory and without fsync, unless it is `durable`: only a machine that loses its power
    could tell, and a new database then takes 12 ms, not the 200 that were measured on a busy disk.
    """
    account = Account.for_server()
    copy = binaries.movable and not binaries.usable(account)
    directory = new_folder(account, memory=not (durable or copy)) if directory is None else directory.absolute()
    try:
        if account is not None:
            account.owns(directory)
        programs = binaries.copied(directory, account) if copy else binaries
        server = OwnServer(programs, account, directory, durable=durable)
    except BaseException:
        shutil.rmtree(directory)
        raise
    try:
        server.begin()
    except BaseException:
        server.close()
        raise
    return server


def new_folder(account: Account | None, *, memory: bool) -> Path:
    """A new folder which the account can reach: in memory where there is enough of it, else for temporary files.

    Programs cannot be started from memory everywhere, so a copy of them asks for the other kind.
    """
    parents = [tempfile.gettempdir(), "/tmp", "/var/tmp"]
    if memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        parents.insert(0, str(MEMORY))
    for parent in map(Path, parents):
        open_to_all = all(above.stat().st_mode & stat.S_IXOTH for above in [parent, *parent.parents])
        if os.access(parent, os.W_OK) and (account is None or open_to_all):
            return Path(tempfile.mkdtemp(prefix="recovery-pg-", dir=parent))
    raise NoPostgres(f"None of {', '.join(parents)} is a folder in which a PostgreSQL server can be made.")


def start_any(environment: Mapping[str, str] = os.environ, *, durable: bool = False) -> OwnServer:
    """A new server of our own from the first programs on this machine that will start."""
    reasons = []
    for binaries in found(environment):
        try:
            return start_postgres(binaries, durable=durable)
        except NoPostgres as error:
            reasons.append(str(error))
    raise NoPostgres("\n".join([THREE_WAYS, *reasons]))


def obtain_postgres(environment: Mapping[str, str] = os.environ) -> PostgresServer:
    """The server that the environment names, else one of our own."""
    url = environment.get(SERVER_VARIABLE)
    if not url:
        return start_any(environment)
    server = PostgresServer(normal_url(url), intended_source(environment))
    try:
        server.version()
    except psycopg.Error as error:
        raise NoPostgres(f"{SERVER_VARIABLE} is set, but {server.source} does not answer: {error}") from error
    return server


def intended_source(environment: Mapping[str, str] = os.environ) -> str:
    """Where the server would come from, found out without starting anything."""
    if environment.get(SERVER_VARIABLE):
        url = sa.make_url(environment[SERVER_VARIABLE])
        return f"the server at {url.host or 'a local socket'}:{url.port or 5432} ({SERVER_VARIABLE})"
    first = next(found(environment), None)
    return "none to be had" if first is None else first.source


def normal_url(url: str) -> str:
    """The same URL without a driver's name, and with the one spelling of `postgresql` that SQLAlchemy takes."""
    return sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
