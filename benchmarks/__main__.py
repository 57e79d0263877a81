"""`python -m benchmarks SCENARIO …` and `recovery bench SCENARIO …`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from recovery.errors import RecoveryError

from . import machine, report, scenarios, servers
from .bars import verdicts
from .bench import Bench, Point
from .comparing import compared
from .options import options, parser, report_parser
from .progress import Progress, progress
from .suites import SUITES
from .targets import Target

WRONG = 1
UNUSABLE = 2


def main(arguments: Sequence[str] | None = None, prog: str = "python -m benchmarks") -> int:
    """Run one scenario. Returns 0, or 1 where a task was lost or done twice, or 2 for what cannot be used."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["peers"]:
        return _peers(given[1:])
    if given[:1] == ["report"]:
        return _report(report_parser(prog).parse_args(given[1:]))
    try:
        return _run(parser(prog).parse_args(given))
    except RecoveryError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return UNUSABLE


def _peers(arguments: Sequence[str]) -> int:
    """Other libraries have a command of their own, which only a checkout has."""
    try:
        module = import_module(f"{__package__}.peers.__main__")
    except ModuleNotFoundError as error:
        print(f"benchmarks: the comparison with peers needs a checkout of the project ({error}).", file=sys.stderr)
        return UNUSABLE
    return int(module.main(list(arguments)) or 0)


def _report(given: Any) -> int:
    """Make one report of what several runs found: the full one takes hours, and may be run in parts."""
    machines, points = report.read(given.files)
    points += compared(given.peers) if given.peers is not None else []
    for path in report.save(given.out, "full", machines, points):
        print(path, file=sys.stderr)
    print("\n".join(report.closing(verdicts(points))))
    return 0


def _run(given: Any) -> int:
    points: list[Point] = []
    machines: list[dict[str, Any]] = []
    with progress(as_json=given.as_json, quiet=given.quiet) as shown, _kept(given.out, points):
        for target in _targets(given):
            machines.append(machine.facts(target))
            _on(target, given, shown, points)
    points += compared(given.peers) if given.peers is not None else []
    if given.out is not None:
        for path in report.save(given.out, given.scenario, machines, points):
            print(path, file=sys.stderr)
    elif not given.as_json:
        print(report.markdown(machines, points, ()))
    if given.out is not None and not given.as_json:
        print("\n".join(report.closing(verdicts(points))))
    return WRONG if any(point.get("duplicates") or point.get("lost") for point in points) else 0


def _on(target: Target, given: Any, shown: Progress, points: list[Point]) -> None:
    def found(point: Point) -> None:
        points.append(point)
        shown.point(point)

    suite = SUITES.get(given.scenario)
    chosen = options(given, suite[1]) if suite else options(given)
    bench = Bench(target, chosen, shown.step, found)
    suite[0](bench) if suite else scenarios.run(given.scenario, bench)


@contextlib.contextmanager
def _kept(folder: Path | None, points: list[Point]) -> Iterator[None]:
    """Keep what was measured before an error: a whole run takes hours."""
    try:
        yield
    except BaseException:
        if folder is not None and points:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "unfinished.json").write_text(json.dumps(points, indent=1) + "\n", encoding="utf-8")
        raise


def _targets(given: Any) -> Iterator[Target]:
    """The database that was asked for; a whole run without one has a SQLite file and an embedded server."""
    asked = given.url is not None or given.container is not None or given.embedded
    if given.url is not None or not asked:
        yield Target(given.url)
    if given.container is not None:
        with servers.container(given.container) as target:
            yield target
    if given.embedded or (not asked and given.scenario in SUITES):
        with servers.embedded() as target:
            yield target


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
