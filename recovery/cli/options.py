"""The options that every command has, and how a result is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeVar

import typer

from recovery import Receiver
from recovery.backend import parse
from recovery.errors import SchemaMismatch, Unavailable

T = TypeVar("T")

DEFAULT_URL: Final = "sqlite:///recovery.db"
INTERRUPTED: Final = 130

Url = Annotated[str, typer.Option("--url", envvar="RECOVERY_URL", help="The database.", show_envvar=True)]
Prefix = Annotated[str, typer.Option("--table-prefix", help="What the names of the tables begin with.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object for each line.")]
Drain = Annotated[bool, typer.Option("--drain", help="Go on until nothing is open, then end.")]
Once = Annotated[bool, typer.Option("--once", help="Do at most one, then end.")]


def say(value: dict[str, Any]) -> None:
    """Print one JSON object, at once."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def teller(render: Callable[[T], str], facts: Callable[[T], dict[str, Any]], *, as_json: bool) -> Callable[[T], None]:
    """What prints one line for each thing that happens."""
    if as_json:
        return lambda event: say(facts(event))
    return lambda event: print(render(event), flush=True)


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
    except (SchemaMismatch, Unavailable) as error:
        more = f" --table-prefix {prefix}" if prefix else ""
        sentence = f"the receiver is not ready: {error} To make it: recovery migrate --url {shown(url)}{more}"
        raise type(error)(sentence) from error
    with receiver:
        yield receiver
