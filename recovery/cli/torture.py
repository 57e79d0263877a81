"""`recovery torture`: break everything around a throw-away queue for some minutes, and check every promise."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.options import AsJson, out
from recovery.errors import Misconfigured

if TYPE_CHECKING:
    from recovery.testing.torture.run import Outcome, Wish

MINUTES_MAX = 24 * 60
SEED_BITS = 32
EVERY = 10


def torture(
    url: Annotated[
        str | None,
        typer.Option("--url", help="A file or database; only new files beside it, or new schemas in it, are used."),
    ] = None,
    embedded: Annotated[  # noqa: FBT002 - a flag of the command
        bool, typer.Option("--embedded", help="A PostgreSQL server of its own, which is stopped at once now and then.")
    ] = False,
    container: Annotated[
        str | None,
        typer.Option("--container", metavar="IMAGE", help="A server in a container, which is killed now and then."),
    ] = None,
    full_disk: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--full-disk", help="SQLite on a small disk that is filled up now and then; needs root.")
    ] = False,
    minutes: Annotated[float, typer.Option("--minutes", help="How long the faults last.")] = 1.0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed plans the same faults; what they meet may differ.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Keep report, timeline and histories here.")] = None,
    as_json: AsJson = False,  # noqa: FBT002 - as above
) -> None:
    """Kill, stop and cut off real processes on a throw-away queue, and check that every promise was kept."""
    if (url is not None) + embedded + (container is not None) > 1:
        raise typer.BadParameter("--url, --embedded and --container exclude each other.")
    if not 0 < minutes <= MINUTES_MAX:
        raise typer.BadParameter(f"--minutes must be above 0 and at most {MINUTES_MAX}.")
    if sys.platform == "win32":
        raise Misconfigured("torture needs fork and signals, which this system does not have.")
    from recovery.testing.torture import clocks, report, run  # No other command has to wait until all that is loaded.

    if embedded or container or (url is not None and not url.startswith("sqlite")):
        clocks.begin_again()
    chosen = secrets.randbits(SEED_BITS) if seed is None else seed
    before = os.umask(0o077)  # What is kept tells of messages that may be anybody's.
    space, kept = run.workspace(folder), folder is not None
    try:
        outcome = _run(
            run.Wish(url, minutes * 60, chosen, space, full_disk=full_disk), embedded=embedded, image=container
        )
        broken = bool(report.violations(outcome))
        kept = kept or broken
        out(json.dumps(report.facts(outcome)) if as_json else report.text(outcome))
        if kept:
            _keep(outcome)
    finally:
        os.umask(before)
        if not kept:
            shutil.rmtree(space)
    raise typer.Exit(1 if broken else 0)


def _run(wish: Wish, *, embedded: bool, image: str | None) -> Outcome:
    from recovery.testing.torture import run

    progress = Progress()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, progress.stop)
    try:
        with run.server_of_our_own(wanted=embedded, image=image) as server:
            more: dict[str, Any] = {} if server is None else {"url": server.url, "server": server}
            return run.torture(dataclasses.replace(wish, **more), progress)
    finally:
        progress.end()


def _keep(outcome: Outcome) -> None:
    from recovery.testing.torture import report, timeline

    folder = outcome.wish.folder
    report.keep(outcome, folder)
    try:
        timeline.draw(outcome, folder)
    except timeline.NoPicture as why:
        out(str(why), sys.stderr)
    out(f"kept in {folder}", sys.stderr)


class Progress:
    """A line that is written over on a terminal; elsewhere every tenth stands."""

    def __init__(self) -> None:
        self._told = 0
        self._live = sys.stderr.isatty()
        self._stopped = 0

    def stop(self, number: int, _frame: object) -> None:
        """Leave everything, by way of whatever has to be cleared away."""
        self._stopped = 128 + number
        sys.exit(self._stopped)

    def __call__(self, line: str) -> None:
        if self._stopped:  # Python drops what is raised while it collects garbage.
            sys.exit(self._stopped)
        if self._live:
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
        elif self._told % EVERY == 0:
            out(line, sys.stderr)
        self._told += 1

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            sys.stderr.write("\n")
