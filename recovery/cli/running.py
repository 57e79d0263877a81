"""`recovery work` and `recovery deliver`: the two loops."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from recovery import Dispatched, Queue, handlers
from recovery.cli.options import DEFAULT_URL, INTERRUPTED, AsJson, Prefix, Url, only_one, receiver_at, teller
from recovery.messages import DEFAULT_QUEUES
from recovery.runtime.dispatcher import Dispatcher
from recovery.runtime.stopping import Stop
from recovery.runtime.worker import Worked, Worker
from recovery.settings import LEASE_SECONDS
from recovery.states import DEAD, PENDING


def work(  # noqa: PLR0913, PLR0917 - an option of the command each
    handler: Annotated[
        str, typer.Option("--handler", help="MODULE:FUNCTION; the current folder is searched too.", show_default=False)
    ],
    drain: Annotated[  # noqa: FBT002 - a flag of the command
        bool,
        typer.Option(
            "--drain",
            help="End when no task of its queues is open: waits for later retries and for what other workers hold.",
        ),
    ] = False,
    once: Annotated[  # noqa: FBT002
        bool, typer.Option("--once", help="Do one task if one can be claimed now, then end; none is no error.")
    ] = False,
    owner: Annotated[
        str | None, typer.Option("--owner", help="The name of this worker; else host and process.")
    ] = None,
    queues: Annotated[
        list[str] | None, typer.Option("--queue", help="A queue to take tasks from; may be repeated. Else: default.")
    ] = None,
    lease_seconds: Annotated[
        float, typer.Option("--lease-seconds", help="How long a claim holds; renewed while the handler runs.")
    ] = LEASE_SECONDS,
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Claim tasks and run a handler, one at a time. Prints one line for each, without what is in it.

    Ctrl-C or SIGTERM stops the handler, gives its task back and exits 130; a second one, more than a second later,
    ends the process at once, and the lease brings the task back. A busy database is waited out, and one that went
    away for up to a minute. What the handler prints goes to standard error.
    """
    only_one(drain=drain, once=once)
    tell = teller(_worked, asdict, as_json=as_json)
    with contextlib.redirect_stdout(sys.stderr):
        function = handlers.load(handler)
        with Queue.open(url, table_prefix=table_prefix, lease_seconds=lease_seconds) as queue, Stop() as stop:
            named = tuple(queues or DEFAULT_QUEUES)
            Worker(queue, function, stop, owner=owner, queues=named, tell=tell).run(drain=drain, once=once)
    _leave(stop)


def deliver(
    to: Annotated[
        str,
        typer.Option("--to", envvar="RECOVERY_RECEIVER_URL", show_envvar=True, help="The receiver's database."),
    ],
    drain: Annotated[  # noqa: FBT002 - a flag of the command
        bool,
        typer.Option(
            "--drain",
            help="End when no reply is waiting or being sent: waits for retries, not for tasks that are still open.",
        ),
    ] = False,
    once: Annotated[  # noqa: FBT002
        bool, typer.Option("--once", help="Send one reply if one is due now, then end; none is no error.")
    ] = False,
    to_prefix: Annotated[str, typer.Option("--to-prefix", help="The receiver's table prefix.")] = "",
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Send replies to a receiver's database, which must have been migrated. Prints one line for each attempt.

    Ctrl-C or SIGTERM lets the delivery at hand end and exits 130.
    """
    only_one(drain=drain, once=once)
    with Queue.open(url, table_prefix=table_prefix) as queue, receiver_at(to, to_prefix) as receiver, Stop() as stop:
        tell = teller(_sent, asdict, as_json=as_json)
        Dispatcher(queue, receiver, stop, tell=tell).run(drain=drain, once=once)
    _leave(stop)


def _leave(stop: Stop) -> None:
    if stop.wanted:
        raise typer.Exit(INTERRUPTED)


def _worked(event: Worked) -> str:
    said = f": {event.error}" if event.error else ""
    return f"{event.state:<7} {event.task_id} attempt {event.attempt} fence {event.fence}{said}"


def _sent(event: Dispatched) -> str:
    said = {PENDING: ": not confirmed, will be sent again", DEAD: ": not confirmed, and not sent again"}
    more = ": the receiver had it already" if event.duplicate else said.get(event.state, "")
    return f"{event.state:<7} {event.reply_id}{more}"
