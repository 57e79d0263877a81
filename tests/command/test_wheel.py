"""The wheel, as those get it who have no checkout: what is in it, and what it does in an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import uv
from packaging.requirements import Requirement

from recovery.schema import VERSION

ROOT = Path(__file__).resolve().parents[2]
REFUSED = "recovery.errors.Misconfigured"
CHECK_VALUE = "reply:bd09939f3bdb800b2ac17a92671ec9f53bb9a79f3c6ce81f465ea21257f41836"


class Installed:
    """An environment that holds the wheel and what it asks for, and a folder to work in that knows no checkout."""

    def __init__(self, folder: Path, wheel: Path, extras: set[str]) -> None:
        self.home, self.work = folder / "environment", folder / "work"
        self.work.mkdir()
        venv.create(self.home, with_pip=False, symlinks=True)
        self.python = self.home / "bin" / "python"
        _run_uv("pip", "install", "--no-deps", "--python", self.python, wheel)
        (self.site,) = self.home.glob("lib/python*/site-packages")
        (found,) = metadata.distributions(path=[str(self.site)])
        for needed in _needed(found, extras, set()):
            self._link(needed)

    def _link(self, distribution: metadata.Distribution) -> None:
        # Linked and not copied or downloaded: this needs no network, and what is not asked for cannot be imported.
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__", "bin"}:
            link = self.site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))

    def run(self, program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs in the folder, to its end."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RECOVERY_"))}
        return subprocess.run(
            [self.home / "bin" / program, *arguments],
            check=False,
            cwd=self.work,
            env=ours | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def printed(self, program: str, *arguments: str, **environment: str) -> str:
        """What a program prints that ends well and complains of nothing."""
        ran = self.run(program, *arguments, **environment)
        assert (0, "") == (ran.returncode, ran.stderr), ran.stdout
        return ran.stdout


def _run_uv(*arguments: object) -> None:
    command = [uv.find_uv_bin(), "--quiet", "--offline", "--no-cache", *map(str, arguments)]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert 0 == ran.returncode, ran.stderr


def _needed(
    distribution: metadata.Distribution, extras: set[str], known: set[tuple[str, str]]
) -> Iterator[metadata.Distribution]:
    """What a distribution needs with these extras, and what that needs, out of the environment of this run."""
    for requirement in map(Requirement, distribution.requires or ()):
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            continue
        wanted = {(requirement.name, extra) for extra in requirement.extras | {""}}
        if wanted <= known:
            continue
        known |= wanted
        if requirement.name == distribution.name:
            yield from _needed(distribution, requirement.extras, known)
            continue
        found = metadata.distribution(requirement.name)
        yield found
        yield from _needed(found, requirement.extras, known)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, made from the source archive, which is made from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    _run_uv("build", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def complete(wheel, tmp_path_factory):
    """The wheel with the two extras of the README's first command, and nothing else."""
    return Installed(tmp_path_factory.mktemp("complete"), wheel, {"cli", "postgres"})


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """The wheel without any extra."""
    return Installed(tmp_path_factory.mktemp("bare"), wheel, set())


def test_what_is_in_it(wheel):
    """The package with its types, migrations and benchmarks, file by file, and neither tests nor anything else."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    folders = {"recovery": "recovery", "migrations": "recovery/migrations", "benchmarks": "recovery/benchmarks"}
    left_out = {"baselines", "peers"}  # What was measured, and what needs other libraries.
    expected = {
        f"{inside}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, inside in folders.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if folder != "benchmarks" or not left_out & set(path.parts)
    }
    assert expected == names
    assert {"recovery/py.typed", "recovery/migrations/env.py"} <= names


@pytest.mark.parametrize("installed", ["complete", "bare"])
def test_it_is_the_wheel_that_runs(installed, request):
    """The package and its migrations come from the environment, and not from this checkout."""
    installed = request.getfixturevalue(installed)
    code = "import recovery; from recovery.migrate import ladder; print(recovery.__file__); print(ladder())"
    package = installed.site.resolve() / "recovery"
    printed = installed.printed("python", "-c", code).splitlines()
    assert [package / "__init__.py", package / "migrations"] == [Path(line).resolve() for line in printed]


def test_its_command_on_both_backends(complete, empty_url):
    """Installed, the command makes the tables, tells that they are empty, and tells the whole demo."""
    at = {"RECOVERY_URL": empty_url}
    assert f"the tables are at {VERSION}" in complete.printed("recovery", "migrate", **at)
    assert 0 == json.loads(complete.printed("recovery", "status", "--json", **at))["received"]
    told = complete.printed("recovery", "demo", "--url", empty_url)
    assert f"check value: {CHECK_VALUE} matches the contract's" in told.splitlines()


def test_its_statements_for_both_backends(complete, backend):
    """Installed, `migrate --sql` prints the tables of either backend, and makes no file."""
    url = {"sqlite": "sqlite:///none.db", "postgresql": "postgresql://host/none"}[backend]
    assert "CREATE TABLE inbox" in complete.printed("recovery", "migrate", "--sql", "--url", url)
    assert not (complete.work / "none.db").exists()


def test_it_runs_as_a_module(complete):
    """`python -m recovery` is the same command."""
    said = complete.printed("python", "-m", "recovery", "--help")
    commands = ("migrate", "send", "work", "deliver", "status", "explain", "demo")
    assert [] == [name for name in commands if name not in said]


def test_the_core_needs_no_extra(bare):
    """Without extras a queue on SQLite is made, a task is received, done and delivered."""
    code = """
import recovery
recovery.migrate("sqlite:///core.db")
with recovery.Queue.open("sqlite:///core.db", allowed_sources={"a"}) as queue:
    queue.receive(recovery.Envelope("m-1", "a", {}, 4e9), recovery.AuthContext("a"))
    queue.finish(queue.claim("w"), 5)
    with recovery.Receiver.open("sqlite:///core.db") as receiver:
        print(queue.dispatch_once(receiver).state)
"""
    assert "sent\n" == bare.printed("python", "-c", code)


@pytest.mark.parametrize("command", [("recovery", "status"), ("python", "-m", "recovery")], ids=["script", "module"])
def test_the_command_names_its_extra(bare, command):
    """Without its extra the command says in one sentence what to install, and exits 2."""
    ran = bare.run(*command)
    assert (2, "", "the command needs an extra: pip install 'recovery[cli]'\n") == (
        ran.returncode,
        ran.stdout,
        ran.stderr,
    )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("recovery.AsyncQueue", "ImportError: AsyncQueue needs an extra: pip install 'recovery[async]'"),
        ("recovery.AsyncReceiver", "ImportError: AsyncReceiver needs an extra: pip install 'recovery[async]'"),
        (
            "recovery.Queue.open('postgresql://host/x')",
            f"{REFUSED}: PostgreSQL needs an extra: pip install 'recovery[postgres]'",
        ),
        (
            "recovery.migrate('postgresql://host/x')",
            f"{REFUSED}: PostgreSQL needs an extra: pip install 'recovery[postgres]'",
        ),
        (
            "recovery.Queue.open('sqlite+pysqlite3:///x.db')",
            f"{REFUSED}: sqlite+pysqlite3:// needs an extra: pip install 'recovery[sqlite]'",
        ),
    ],
)
def test_what_needs_an_extra_says_which(bare, code, error):
    """Whatever needs an extra says what to install, in its last line."""
    ran = bare.run("python", "-c", f"import recovery; {code}")
    assert (1, error) == (ran.returncode, ran.stderr.splitlines()[-1])
