"""`recovery send`: JSON Lines in, one ACK for each line out, each committed before the next is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from recovery import Ack, AuthContext, Queue
from recovery.accepting import is_text_key
from recovery.cli.lines import envelope, numbered
from recovery.cli.options import DEFAULT_URL, AsJson, Prefix, Url, say
from recovery.errors import Misconfigured, Overloaded, RecoveryError
from recovery.queue import Session


def send(
    principal: Annotated[str, typer.Option("--as", help="Who sends: the principal of this run.")],
    file: Annotated[str, typer.Argument(help="JSON Lines, or - for standard input.")] = "-",
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: ARG001, FBT002 - an ACK is JSON in any case
) -> None:
    """Store messages, one for each line, and print one ACK for each, once it is committed.

    A line is a JSON object with message_id, deadline (seconds since the epoch) and payload; max_attempts, hops, kind
    and sender are optional. Stops at the first line that is refused, tells its number and exits 1; the lines before
    it are stored. Sending the same file again is harmless.
    """
    if not is_text_key(principal):
        raise Misconfigured("--as must be 1 to 128 bytes of UTF-8, with no control character.")
    with (
        _opened(file) as lines,
        Queue.open(url, table_prefix=table_prefix, allowed_sources={principal}) as queue,
        queue.session() as session,
    ):
        for number, line in numbered(lines):
            say(asdict(_stored(session, number, line, principal)))


def _stored(session: Session, number: int, line: bytes, principal: str) -> Ack:
    try:
        ack: Ack = session.receive(envelope(line, principal), AuthContext(principal))
    except RecoveryError as error:
        print(f"line {number}: {error} The lines before it are stored; sending all again is harmless.", file=sys.stderr)
        raise typer.Exit(1 if isinstance(error, ValueError | Overloaded) else 2) from error
    return ack


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        if sys.stdin is None:
            raise Misconfigured("standard input is closed.")
        yield sys.stdin.buffer
        return
    try:
        lines = Path(file).open("rb")  # noqa: SIM115 - closed below; only the opening is guarded
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no name of a file"
        raise Misconfigured(f"the file {file!r} cannot be read: {why}.") from error
    with lines:
        yield lines
