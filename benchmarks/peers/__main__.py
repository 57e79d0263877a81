"""Compare recovery with other queues: `python -m benchmarks.peers --url postgresql://…`, or `make bench-peers`."""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import ROWS, Row
from benchmarks.peers.environments import NotAvailable, environment, ran
from benchmarks.peers.stores import store
from benchmarks.peers.table import MEASURES, Line, markdown


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--url", help="a PostgreSQL server whose role may create databases; without it, SQLite only")
    parser.add_argument("--tasks", type=int, default=2000, help="tasks per run (default: 2000)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, of which medians are shown")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these queues only, and recovery")
    parser.add_argument("--environments", type=Path, help="where the environments are kept (default: a temporary one)")
    parser.add_argument("--files", type=Path, help="where the SQLite files are made: on a real disk, for real figures")
    parser.add_argument("--python", action="append", default=[], help="an interpreter to try for newer peers")
    parser.add_argument("--out", type=Path, help="a folder for peers.md and peers.json")
    parser.add_argument("--seconds", type=float, default=300, help="the longest that one run may take")
    return parser.parse_args(argv)


class Comparison:
    """The rounds: everyone in turn, so that a slow minute of the machine falls on all of them."""

    def __init__(self, options: argparse.Namespace, environments: Path) -> None:
        self.options = options
        self.environments = environments
        chosen = {"recovery", *options.only} if options.only else {row.peer for row in ROWS}
        self.lines = [Line(row) for row in ROWS if row.peer in chosen]

    def run(self) -> None:
        for line in self.lines:
            self.prepare(line)
        for number in range(self.options.rounds):
            first = number % len(self.lines)
            for line in (*self.lines[first:], *self.lines[:first]):
                self.round(line, f"round {number + 1}/{self.options.rounds}")

    def prepare(self, line: Line) -> None:
        """Make the environment, try each setting on a third of the tasks, and keep the best."""
        try:
            environment(line.row.peer, self.environments, self.options.python)
        except NotAvailable as error:
            for measure in MEASURES:
                failed(line, measure, error)
            return
        for pair in line.row.settings:
            self.attempt(line, pair)
        rated = [(trial["tasks_per_second"], trial["pair"]) for trial in line.trials]
        if rated:
            line.best = max(rated)[1]
            line.faults.clear()

    def attempt(self, line: Line, pair: tuple[int, int]) -> None:
        """Try one setting; one that fails does not speak for the others."""
        try:
            line.trials.append({"pair": pair, **self.once(line.row, "process", pair, -(-self.options.tasks // 3))})
            say("trial", line.row, line.trials[-1])
        except NotAvailable as error:
            failed(line, "process", error)

    def round(self, line: Line, label: str) -> None:
        pairs = {"single": (1, 1), "batch": (1, 100) if line.row.batches else None, "process": line.best}
        for measure in MEASURES:
            pair = pairs[measure]
            if pair is None or measure in line.faults:
                continue
            try:
                answer = self.once(line.row, "process" if measure == "process" else "enqueue", pair, self.options.tasks)
            except NotAvailable as error:
                failed(line, measure, error)
            else:
                line.answers[measure].append(answer)
                say(f"{label} {measure}", line.row, answer)

    def once(self, row: Row, mode: str, pair: tuple[int, int], tasks: int) -> dict[str, Any]:
        """One run in a process of its own, in the peer's environment, on an empty database."""
        python = environment(row.peer, self.environments, self.options.python)
        with store(row.backend, self.options.url, self.options.files) as url:
            command = [python, "-m", f"benchmarks.peers.{row.module}_peer", "--url", url, "--tasks", str(tasks)]
            command += ["--workers", str(pair[0]), "--batch", str(pair[1]), "--mode", mode]
            printed = ran([*command, "--durability", row.durability], self.options.seconds)
        answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return answer


def say(what: str, row: Row, answer: dict[str, Any]) -> None:
    """A line of progress, at once."""
    rate = f"{answer['tasks_per_second']:,.0f}/s"
    print(f"{what}: {row.backend} {row.label}: {rate} ({answer['settings']})", file=sys.stderr, flush=True)


def failed(line: Line, measure: str, error: NotAvailable) -> None:
    """Keep why, and go on with the others."""
    line.faults[measure] = str(error)
    print(f"failed: {line.row.backend} {line.row.label}: {error}", file=sys.stderr, flush=True)


def report(comparison: Comparison) -> None:
    """Print the tables, and write them with every single answer where a folder was named."""
    options = comparison.options
    text = markdown(comparison.lines, options.tasks, options.rounds)
    print(text, end="")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "peers.md").write_text(text, encoding="utf-8")
        facts = {
            "tasks": options.tasks,
            "rounds": options.rounds,
            "lines": [line.json() for line in comparison.lines],
        }
        (options.out / "peers.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; 0 also where a peer could not be had, since its row says so."""
    options = parsed(argv)
    with tempfile.TemporaryDirectory(prefix="peers-environments-") as temporary:
        comparison = Comparison(options, (options.environments or Path(temporary)).absolute())
        try:
            comparison.run()
        except KeyboardInterrupt:
            print("stopped: the medians are of the rounds so far", file=sys.stderr)
        report(comparison)
    return 0


if __name__ == "__main__":
    sys.exit(main())
