"""The command line: one subcommand for each scenario, all with the same options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from recovery.testing.torture.container import IMAGE

from .bench import Options
from .scenarios import NAMES

HELP = {
    "contention": "throughput, latency and fairness when many workers fight for one queue",
    "strategies": "ways to claim, side by side: why the library does what it does",
    "receive": "receiving one by one, in batches, all at once; with and without duplicates",
    "whole": "receive, claim, finish, deliver, receipt; and how soon an idle worker picks up",
    "growth": "many finished, pending and future rows, expired leases, an old transaction",
    "floor": "the library's cost over the same statements sent by the driver alone",
    "memory": "a worker's memory after many tasks over its memory after a few",
    "short": "contention, whole and floor in short form: about five minutes for two databases",
    "full": "every scenario, with the closing table of bars",
    "report": "one report of the JSON files of several runs",
    "peers": "other libraries, each in an environment of its own",
}
DEFAULTS = Options()


def parser(prog: str) -> argparse.ArgumentParser:
    """What the command understands."""
    made = argparse.ArgumentParser(prog=prog, description="Benchmarks of the recovery queue.")
    scenarios = made.add_subparsers(dest="scenario", required=True, metavar="SCENARIO")
    for name in (*NAMES, "short", "full"):
        _options(scenarios.add_parser(name, help=HELP[name], description=HELP[name]))
    for name in ("report", "peers"):
        scenarios.add_parser(name, help=HELP[name], add_help=False)
    return made


def report_parser(prog: str) -> argparse.ArgumentParser:
    """What `report` understands."""
    made = argparse.ArgumentParser(prog=f"{prog} report", description=HELP["report"])
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the JSON of runs with --out")
    made.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the report is written")
    made.add_argument("--peers", type=Path, metavar="FILE", help="peers.json of `make bench-peers`")
    return made


def _options(of: argparse.ArgumentParser) -> None:
    where = of.add_mutually_exclusive_group()
    where.add_argument("--url", help="the database; without one a temporary SQLite file. Its own tables stay untouched")
    where.add_argument("--container", nargs="?", const=IMAGE, metavar="IMAGE", help=f"a container ({IMAGE})")
    where.add_argument("--embedded", action="store_true", help="a PostgreSQL server of our own, for this run")
    of.add_argument("--processes", type=_numbers, metavar="1,2,…", help="numbers of worker processes")
    of.add_argument("--batch", type=_numbers, metavar="1,10,…", help="batch sizes")
    of.add_argument("--threads", type=_number, metavar="N", help="threads, each with a session, in every process")
    of.add_argument("--seconds", type=_seconds, help="how long each point is measured")
    of.add_argument("--payload-bytes", type=_count, metavar="N", help="size of each message's payload")
    of.add_argument("--seed", type=_count, metavar="N", help="the same seed gives the same messages")
    of.add_argument("--rounds", type=_number, metavar="N", help="interleaved rounds, of which the median counts")
    of.add_argument("--cycles", type=_number, metavar="N", help="calls in each round, where calls are counted")
    of.add_argument("--rows", type=_number, metavar="N", help="how large `growth` and `memory` make the tables")
    of.add_argument("--minute-seconds", type=_seconds, metavar="S", help="how long an old transaction stays open")
    of.add_argument("--out", type=Path, metavar="FOLDER", help="write JSON, a Markdown report and pictures here")
    of.add_argument(
        "--peers", type=Path, metavar="FILE", help="peers.json of `make bench-peers`, for the bars about peers"
    )
    of.add_argument("--json", action="store_true", dest="as_json", help="print a JSON object for each point")
    of.add_argument("--quiet", action="store_true", help="no progress")


def options(given: argparse.Namespace, otherwise: Options = DEFAULTS) -> Options:
    """The options of a run: what was given, else what stands in `otherwise`."""
    found: dict[str, Any] = {}
    for name in Options.__slots__:
        value = getattr(given, name, None)
        found[name] = getattr(otherwise, name) if value is None else value
    return Options(**found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in text.split(","))


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return seconds
