"""The list of commands."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from recovery import migrate as run_ladder
from recovery.cli.benching import bench
from recovery.cli.looking import explain, status
from recovery.cli.options import DEFAULT_URL, AsJson, Prefix, Url, out, printable_anywhere, say
from recovery.cli.running import deliver, work
from recovery.cli.sending import send
from recovery.cli.torture import torture
from recovery.migrate import migration_sql

app = typer.Typer(
    name="recovery",
    help="Durable inbox, tasks and outbox on SQLite and PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.callback()(printable_anywhere)


@app.command()
def migrate(
    url: Url = DEFAULT_URL,
    table_prefix: Prefix = "",
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements and connect to nothing.")] = False,  # noqa: FBT002
    as_json: AsJson = False,  # noqa: FBT002 - a flag of the command
) -> None:
    """Make or upgrade the tables, all or nothing."""
    if sql:
        text = migration_sql(url, table_prefix=table_prefix)
        say({"sql": text}) if as_json else out(text.rstrip("\n"))
        return
    revision = run_ladder(url, table_prefix=table_prefix)
    say({"revision": revision}) if as_json else out(f"the tables are at {revision}")


for _command in (send, work, deliver, status, explain, torture):
    app.command()(_command)

# Its options are the benchmarks' own, --help too.
_own = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command(context_settings=_own)(bench)

if importlib.util.find_spec("recovery.cli.demo"):
    app.command()(importlib.import_module("recovery.cli.demo").demo)
