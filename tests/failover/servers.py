"""Two PostgreSQL servers, one following the other: made, killed, promoted, rewound, and made to follow again."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from tests.plugins.pg_binaries import Account, Binaries, NoPostgres, as_account, found
from tests.plugins.pg_server import new_folder

NAMES = ("a", "b")
"""What the servers are called: by themselves, in `synchronous_standby_names`, and as slots."""
STRICT, LENIENT, ASYNCHRONOUS = "strict", "lenient", "asynchronous"
"""Whether a primary without its standby waits at every COMMIT, goes on alone until it is back, or never waits for it.

The first two are what Patroni does with `synchronous_mode_strict` and with `synchronous_mode` alone.
"""
NEEDED = ("initdb", "pg_ctl", "postgres", "pg_basebackup", "pg_rewind")
SETTINGS = (
    "listen_addresses = '127.0.0.1'",
    "unix_socket_directories = ''",
    "max_connections = 100",
    "wal_level = replica",
    "hot_standby = on",
    "wal_log_hints = on",
    "wal_keep_size = '256MB'",
    "dynamic_shared_memory_type = mmap",  # In the server's own folder: a kill leaves nothing elsewhere.
)
PATIENCE_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.02


@dataclass(frozen=True)
class Site:
    """Where both servers live: programs, the user they run as, a folder, and the password of the one role."""

    binaries: Binaries
    account: Account | None
    folder: Path
    password: str

    @property
    def passfile(self) -> Path:
        """Where standbys and programs find the password."""
        return self.folder / "passfile"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs to its end. Raises NoPostgres with its own words where it failed."""
        self.binaries.run(program, *arguments, account=self.account, cwd=self.folder)

    def owned(self, path: Path, text: str) -> None:
        """Write a file that only the servers' user can read."""
        path.touch(mode=0o600)
        path.write_text(text)
        if self.account is not None:
            self.account.owns(path)


class Node:
    """One server; its address stays the same whatever part it has."""

    def __init__(self, name: str, site: Site) -> None:
        self.name, self._site = name, site
        self.data = site.folder / name
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self.conninfo = f"host=127.0.0.1 port={self.port} user=recovery passfile={site.passfile}"

    def make(self, settings: tuple[str, ...]) -> None:
        """Make an empty cluster."""
        site, secret = self._site, self._site.folder / "password"
        site.owned(secret, site.password)
        who = ("--username=recovery", "--auth=scram-sha-256", f"--pwfile={secret}")
        site.run("initdb", f"--pgdata={self.data}", *who, "--encoding=UTF8", "--no-locale", "--no-sync")
        secret.unlink()
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("\n".join(["", *settings, ""]))

    def start(self) -> None:
        """Start it in whatever part it has; returns when it accepts connections."""
        own = {"port": str(self.port), "cluster_name": self.name, "primary_slot_name": self.name}
        options = " ".join(f"-c {name}={value}" for name, value in own.items())
        how = ("--wait", f"--timeout={PATIENCE_SECONDS:.0f}", "--silent", f"--log={self.data}.log")
        self._site.run("pg_ctl", "start", f"--pgdata={self.data}", *how, f"--options={options}")

    def copy(self, primary: Node) -> None:
        """Become a copy of a running primary, which will follow it."""
        primary.make_slot(self.name)
        what = (f"--dbname={primary.conninfo}", f"--pgdata={self.data}", f"--slot={self.name}")
        self._site.run("pg_basebackup", *what, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast")

    def rewind(self, primary: Node) -> None:
        """After a kill: throw away what the new primary does not have, and follow it."""
        primary.make_slot(self.name)
        primary.ask("CHECKPOINT")  # What says on which timeline it is, is written by the one after its promotion.
        what = (f"--target-pgdata={self.data}", f"--source-server={primary.conninfo} dbname=postgres")
        self._site.run("pg_rewind", *what, "--write-recovery-conf")

    def make_slot(self, name: str) -> None:
        """Keep the log for a follower of this name, from now on."""
        have = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
        if not self.ask(have, name):
            self.ask("SELECT pg_create_physical_replication_slot(%s, true)", name)

    def promote(self) -> None:
        """Make a primary of a standby; returns when it takes writes."""
        self._site.run("pg_ctl", "promote", f"--pgdata={self.data}", "--no-wait", "--silent")
        until(lambda: not self.ask("SELECT pg_is_in_recovery()")[0][0])

    def kill(self) -> float:
        """End every process of it at once, as a machine that loses its power does; when, in seconds since the epoch.

        The postmaster stands still meanwhile, so that it neither starts another one nor lets its children see it die.
        """
        noted = self.data / "postmaster.pid"
        lines = noted.read_text().splitlines()
        postmaster, segment = int(lines[0]), lines[6].split()[1]
        os.kill(postmaster, signal.SIGSTOP)
        pids = [*children(postmaster), postmaster]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        killed = time.time()
        until(lambda: not any(map(is_alive, pids)))
        # A machine that comes back has neither of these.
        subprocess.run(["ipcrm", "--shmem-id", segment], check=True)
        noted.unlink()
        return killed

    def ask(self, statement: LiteralString | sql.Composed, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement outside a transaction, and return its rows."""
        with psycopg.connect(
            f"{self.conninfo} dbname=postgres", password=self._site.password, autocommit=True, connect_timeout=10
        ) as line:
            cursor = line.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def configure(self, name: LiteralString, value: str) -> None:
        """Change a setting of the running server."""
        self.ask(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        self.ask("SELECT pg_reload_conf()")

    def follower(self) -> str | None:
        """How the standby stands that streams from here: `sync`, `async`; None where there is none."""
        rows = self.ask("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")
        return rows[0][0] if rows else None


class Pair:
    """A primary and its standby. `url` names both, and leads to whichever takes writes."""

    def __init__(self, site: Site, mode: str) -> None:
        self.mode = mode
        self.primary, self.standby = (Node(name, site) for name in NAMES)
        ports = f"{self.primary.port},{self.standby.port}"
        where = f"host=127.0.0.1,127.0.0.1&port={ports}&target_session_attrs=read-write"
        self.url = f"postgresql://recovery:{site.password}@/postgres?{where}"

    def make(self) -> None:
        """Start both from nothing."""
        names = ", ".join(NAMES) if self.mode == STRICT else ""
        self.primary.make((*SETTINGS, f"synchronous_standby_names = '{names}'"))
        self.primary.start()
        self.standby.copy(self.primary)
        self.standby.start()
        protect(self.primary, self.standby, self.mode)

    def swap(self) -> None:
        """Note that the two have changed parts."""
        self.primary, self.standby = self.standby, self.primary

    def hold_back(self) -> None:
        """Cut the standby off: nothing that is committed from now on reaches it."""
        self.standby.configure("primary_conninfo", "")
        until(lambda: self.primary.follower() is None)

    def let_go(self) -> None:
        """Let the standby follow again."""
        self.standby.configure("primary_conninfo", self.primary.conninfo)
        protect(self.primary, self.standby, self.mode)

    def rejoin(self) -> None:
        """Let the killed server follow the other one, which was promoted. They change parts with `swap`, later."""
        self.primary.rewind(self.standby)
        self.primary.start()
        protect(self.standby, self.primary, self.mode)


def protect(primary: Node, standby: Node, mode: str) -> None:
    """Return when the standby follows; from then on no COMMIT is answered before the standby has it.

    In the lenient mode this is where the primary is told so, and not before there is somebody to wait for.
    """
    until(primary.follower)
    if mode == LENIENT:
        primary.configure("synchronous_standby_names", standby.name)
    until(lambda: primary.follower() == ("async" if mode == ASYNCHRONOUS else "sync"))


def until(true: Callable[[], object]) -> None:
    """Wait until it is true. Raises TimeoutError after a minute; a server that does not answer yet is asked again."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(psycopg.OperationalError):
            if true():
                return
        if time.monotonic() > end:
            raise TimeoutError("the servers did not come to the state that was waited for")
        time.sleep(LOOK_AGAIN_SECONDS)


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that have not ended."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if parent(entry) == pid]


def parent(entry: Path) -> int | None:
    """Whose child a process is."""
    status = _status(entry)
    return int(status["PPid"]) if status else None


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for does not."""
    status = _status(Path("/proc", str(pid)))
    return bool(status) and not status["State"].startswith("Z")


def _status(entry: Path) -> Mapping[str, str]:
    try:
        lines = (entry / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@contextlib.contextmanager
def pair_of_servers(mode: str) -> Iterator[Pair]:
    """A pair that is gone with this process, however it ends. Raises NoPostgres where programs are missing."""
    account = Account.for_server()
    binaries = next((one for one in found() if all((one.folder / name).is_file() for name in NEEDED)), None)
    if binaries is None:
        raise NoPostgres(f"None of the sets of programs here has all of {', '.join(NEEDED)}.")
    is_copied = binaries.movable and not binaries.usable(account)
    folder = new_folder(account, memory=not is_copied)
    try:
        if account is not None:
            account.owns(folder)
        programs = binaries.copied(folder, account) if is_copied else binaries
        site = Site(programs, account, folder, secrets.token_hex(16))
        site.owned(site.passfile, f"*:*:*:recovery:{site.password}\n")
        guard = _guarded(site)
        try:
            pair = Pair(site, mode)
            pair.make()
            yield pair
        finally:
            guard.communicate(b"\n", timeout=PATIENCE_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _guarded(site: Site) -> subprocess.Popen[bytes]:
    """A shell that waits for the end of its input, which comes when this process ends, then ends both servers."""
    stop = '"$0" stop --pgdata="$1/{}" --mode=immediate --silent; '
    script = "read -r line; " + "".join(stop.format(name) for name in NAMES) + 'rm -rf "$1"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, site.binaries.folder / "pg_ctl", site.folder],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **as_account(site.account),
    )
