"""`recovery work` and `recovery deliver`: the two loops."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from recovery import Dispatched, Queue, handlers
from recovery.cli.options import (
    DEFAULT_URL,
    INTERRUPTED,
    AsJson,
    Drain,
    Once,
    Prefix,
    Url,
    only_one,
    receiver_at,
    teller,
)
from recovery.runtime.dispatcher import Dispatcher
from recovery.runtime.stopping import Stop
from recovery.runtime.worker import Worked, Worker
from recovery.settings import LEASE_SECONDS


def work(
    handler: Annotated[str, typer.Option("--handler", help="MODULE:FUNCTION; the current folder is searched too.")],
    drain: Drain = False,  # noqa: FBT002 - a flag of the command
    once: Once = False,  # noqa: FBT002
    owner: Annotated[str | None, typer.Option("--owner", help="The name of this worker.")] = None,
    lease_seconds: Annotated[float, typer.Option("--lease-seconds", help="How long a claim holds.")] = LEASE_SECONDS,
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Claim tasks and run a handler. Ctrl-C gives the task back."""
    only_one(drain=drain, once=once)
    function = handlers.load(handler)
    with Queue.open(url, table_prefix=table_prefix, lease_seconds=lease_seconds) as queue, Stop() as stop:
        tell = teller(_worked, asdict, as_json=as_json)
        Worker(queue, function, stop, owner=owner, tell=tell).run(drain=drain, once=once)
    if stop.wanted:
        raise typer.Exit(INTERRUPTED)


def deliver(
    to: Annotated[str, typer.Option("--to", help="The receiver's database.")],
    drain: Drain = False,  # noqa: FBT002 - a flag of the command
    once: Once = False,  # noqa: FBT002
    to_prefix: Annotated[str, typer.Option("--to-prefix", help="The receiver's table prefix.")] = "",
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Send replies to a receiver's database, which must have been migrated."""
    only_one(drain=drain, once=once)
    with Queue.open(url, table_prefix=table_prefix) as queue, receiver_at(to, to_prefix) as receiver, Stop() as stop:
        tell = teller(_sent, asdict, as_json=as_json)
        Dispatcher(queue, receiver, stop, tell=tell).run(drain=drain, once=once)
    if stop.wanted:
        raise typer.Exit(INTERRUPTED)


def _worked(event: Worked) -> str:
    said = f": {event.error}" if event.error else ""
    return f"{event.task_id} {event.state} fence {event.fence} attempt {event.attempt}{said}"


def _sent(event: Dispatched) -> str:
    return f"{event.reply_id} {event.state}{' (the receiver had it already)' if event.duplicate else ''}"
