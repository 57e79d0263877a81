"""`recovery status` and `recovery explain`: reading only."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from recovery import Counts, Queue
from recovery.cli.options import DEFAULT_URL, AsJson, Prefix, Url, out, say

UNDER_THE_WORDS = 12
"""Where a stage's words begin in an explanation, and where they go on when they are broken."""


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
        return
    out("\n".join(_lines(counts, dim=_may_dim())))


def explain(
    task: Annotated[str, typer.Argument(help="The id of a task, or of its reply.")],
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    as_json: AsJson = False,  # noqa: FBT002 - a flag of the command
) -> None:
    """Tell one task's story: what was received, the work, how it ended, the delivery, and what happens next.

    Exits 1 for an id that is not stored. With --json it prints payload and result too.
    """
    with Queue.open(url, table_prefix=table_prefix) as queue:
        story = queue.explain(task.removeprefix("reply:"))
    if story is None:
        print(f"there is no task {task!r} in this database.", file=sys.stderr)
        raise typer.Exit(1)
    if as_json:
        say(asdict(story))
    else:
        out(_broken(str(story)))


def _broken(text: str) -> str:
    """Lines no longer than the terminal is wide; unchanged where the output goes elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    wrapper = textwrap.TextWrapper(
        max(shutil.get_terminal_size().columns, 4 * UNDER_THE_WORDS),
        subsequent_indent=" " * UNDER_THE_WORDS,
        break_on_hyphens=False,
    )
    return "\n".join(wrapper.fill(line) for line in text.splitlines())


def _may_dim() -> bool:
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return on_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _lines(counts: Counts, *, dim: bool) -> Iterator[str]:
    """One line for each state, and a blank one between facts. On a terminal what is zero steps back."""
    yield _line("fact", "state", "rows")
    facts = {"received": {"": counts.received}, "open": counts.open, "ended": counts.ended, "delivery": counts.delivery}
    for fact, states in facts.items():
        yield ""
        for number, (state, rows) in enumerate(states.items()):
            line = _line(fact if number == 0 else "", state, str(rows))
            yield f"\x1b[2m{line}\x1b[0m" if dim and not rows else line


def _line(fact: str, state: str, rows: str) -> str:
    return f"{fact:<10}{state:<10}{rows:>10}"
