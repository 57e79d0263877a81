"""`recovery status` and `recovery explain`: reading only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from recovery import Counts, Queue
from recovery.cli.options import DEFAULT_URL, AsJson, Prefix, Url, say


def status(
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: FBT002 - a flag of the command
) -> None:
    """The four facts: received, open, ended, delivery. They are never added up to one sign."""
    with Queue.open(url, table_prefix=table_prefix) as queue:
        counts = queue.counts()
    if as_json:
        say(asdict(counts))
    else:
        Console().print(_table(counts))


def explain(
    task: Annotated[str, typer.Argument(help="The id of a task.")],
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: FBT002 - a flag of the command
) -> None:
    """Tell one task's story."""
    with Queue.open(url, table_prefix=table_prefix) as queue:
        story = queue.explain(task)
    if story is None:
        print(f"there is no task {task!r} in this database.", file=sys.stderr)
        raise typer.Exit(1)
    if as_json:
        say(asdict(story))
    else:
        print(story)


def _table(counts: Counts) -> Table:
    table = Table("fact", "state", "rows")
    table.add_row("received", "", str(counts.received), end_section=True)
    facts: dict[str, Mapping[str, int]] = {"open": counts.open, "ended": counts.ended, "delivery": counts.delivery}
    for fact, states in facts.items():
        for number, (state, rows) in enumerate(states.items(), 1):
            table.add_row(fact if number == 1 else "", state, str(rows), end_section=number == len(states))
    return table
