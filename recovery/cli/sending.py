"""`recovery send`: JSON Lines in, one ACK for each line out, each committed before the next is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from recovery import AuthContext, Queue
from recovery.cli.lines import envelope
from recovery.cli.options import DEFAULT_URL, AsJson, Prefix, Url, say
from recovery.errors import Misconfigured, RecoveryError


def send(
    principal: Annotated[str, typer.Option("--as", help="Who sends: the principal of this run.")],
    file: Annotated[str, typer.Argument(help="JSON Lines, or - for standard input.")] = "-",
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: ARG001, FBT002 - an ACK is JSON in any case
) -> None:
    """Store messages. Stops at the first that is refused; sending the same file again is harmless."""
    with (
        Queue.open(url, table_prefix=table_prefix, allowed_sources={principal}) as queue,
        queue.session() as session,
        _opened(file) as lines,
    ):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                ack = session.receive(envelope(line, principal), AuthContext(principal))
            except RecoveryError as error:
                print(f"line {number}: {error}", file=sys.stderr)
                raise typer.Exit(1) from error
            say(asdict(ack))


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        lines = Path(file).open("rb")  # noqa: SIM115 - closed below; only the opening is guarded
    except OSError as error:
        raise Misconfigured(f"the file {file} cannot be read: {error.strerror}.") from error
    with lines:
        yield lines
