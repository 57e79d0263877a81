"""The options that every command has, and how a result is printed."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, TextIO, TypeVar

import typer

from recovery import Receiver
from recovery.backend import parse
from recovery.errors import Misconfigured, SchemaMismatch, Unavailable

T = TypeVar("T")

DEFAULT_URL: Final = "sqlite:///recovery.db"
INTERRUPTED: Final = 130

Url = Annotated[str, typer.Option("--url", envvar="RECOVERY_URL", help="The database.", show_envvar=True)]
Prefix = Annotated[str, typer.Option("--table-prefix", help="What the names of the tables begin with.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object for each line.")]


def say(value: dict[str, Any], file: TextIO | None = None) -> None:
    """Print one JSON object, at once. In ASCII, so that it stays JSON whatever the terminal's encoding is."""
    out(json.dumps(value), file)


def out(text: str, file: TextIO | None = None) -> None:
    """Print lines at once, to standard output where nothing else is named.

    A reader that went away (`| head -1`) ends the command quietly with exit 1. Raises Misconfigured where the output
    cannot be written.
    """
    file = sys.stdout if file is None else file
    try:
        print(text, file=file, flush=True)
    except OSError as error:
        _give_up(file)
        if error.errno == errno.EPIPE:
            raise typer.Exit(1) from error
        raise Misconfigured(f"the output cannot be written: {error.strerror}.") from error


def _give_up(file: TextIO) -> None:
    """Lead a broken output nowhere: what is left in its buffer would fail again, loudly, when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def printable_anywhere() -> None:
    """Let standard output escape what its encoding does not have, as standard error does."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def teller(render: Callable[[T], str], facts: Callable[[T], dict[str, Any]], *, as_json: bool) -> Callable[[T], None]:
    """What prints one line for each thing that happens, on what is standard output now."""
    file = sys.stdout
    if as_json:
        return lambda event: say(facts(event), file)
    return lambda event: out(render(event), file)


def only_one(*, drain: bool, once: bool) -> None:
    """Refuse two ways to end at the same time."""
    if drain and once:
        raise typer.BadParameter("--drain and --once exclude each other.")


def shown(url: str) -> str:
    """A URL as it may be printed: no password, and no query, which can hold one too."""
    return parse(url).set(query={}).render_as_string(hide_password=True)


@contextmanager
def receiver_at(url: str, prefix: str) -> Iterator[Receiver]:
    """The receiver's database, which must be there already."""
    try:
        receiver = Receiver.open(url, table_prefix=prefix)
    except SchemaMismatch as error:
        more = f" --table-prefix {prefix}" if prefix else ""
        sentence = f"the receiver is not ready: {error} To make it: recovery migrate --url {shown(url)}{more}"
        raise SchemaMismatch(sentence) from error
    except (Misconfigured, Unavailable) as error:
        raise type(error)(f"the receiver: {error}") from error
    with receiver:
        yield receiver
