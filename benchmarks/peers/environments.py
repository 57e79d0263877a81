"""Each peer's own virtual environment, made once under a cache folder and made anew when its pins change."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

VERSIONS = Path(__file__).with_name("versions.toml")
ROOT = Path(__file__).parents[2]
NEWEST = range(14, 10, -1)


class NotAvailable(Exception):
    """A peer cannot be had on this machine; the reason stands in the table."""


def versions() -> dict[str, Any]:
    """The pins, by the peer's name."""
    return tomllib.loads(VERSIONS.read_text(encoding="utf-8"))


def environment(name: str, folder: Path, pythons: list[str]) -> str:
    """Return the Python of this peer's environment, making it first where it is missing. Raises NotAvailable."""
    if name == "recovery":
        return sys.executable
    pins = versions()[name]
    place = folder / name
    stamp = place / "pins.json"
    wanted = json.dumps(pins)
    python = place / "bin" / "python"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(place, ignore_errors=True)
        made(interpreter(pins["python"], pythons), place)
        ran([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins["packages"]])
        stamp.write_text(wanted, encoding="utf-8")
    return str(python)


def made(python: str, place: Path) -> None:
    """Make an empty environment with pip in it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        ran([python, "-m", "venv", str(place)])
    except NotAvailable:
        # Debian without python3-venv has the module but not the pip to put into an environment.
        ran(["uv", "venv", "--quiet", "--clear", "--seed", "--python", python, str(place)])


def interpreter(minimum: str, pythons: list[str]) -> str:
    """Find a Python that is new enough: this one, those named by the caller, those on the path, those of pyenv."""
    named = [shutil.which(f"python3.{minor}") or "" for minor in NEWEST]
    managed = sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python3")), reverse=True)
    for candidate in (sys.executable, *pythons, *named, *managed):
        if candidate and new_enough(candidate, minimum):
            return candidate
    raise NotAvailable(f"needs Python {minimum} or later, and none was found (--python names one)")


def new_enough(python: str, minimum: str) -> bool:
    """Whether this interpreter runs, and is at least that version."""
    question = f"import sys; sys.exit(sys.version_info < {tuple(map(int, minimum.split('.')))!r})"
    try:
        asked = subprocess.run([python, "-c", question], capture_output=True, check=False, timeout=30)  # noqa: S603 - ours, no shell
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def ran(command: list[str], seconds: float = 600) -> str:
    """Run a command in the checkout and return what it printed. Raises NotAvailable with the last line of its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT)  # noqa: S603 - as above
    except subprocess.TimeoutExpired as error:
        raise NotAvailable(f"took longer than {seconds:.0f} s") from error
    except OSError as error:
        raise NotAvailable(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotAvailable(lines[-1][:300] if lines else f"ended with status {done.returncode}")
    return done.stdout
