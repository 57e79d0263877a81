"""The timeline: each actor's lives, and what was done to them; below, how the work went on. As SVG and as PNG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from recovery.testing.history import OK
from recovery.testing.torture.company import Event
from recovery.testing.torture.run import Outcome

DOTS_PER_INCH: Final = 144
LIFE, STOP, KILL, EXIT, CRASH, TERMINATE, WORK = (
    *("#9db8d2", "#d9a441", "#b0413e", "#8a5fb5"),
    *("#b0413e", "#3d8f5f", "#2f6fb0"),
)
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "recovery",
    "svg.fonttype": "none",
}
SHOWN: Final = ("receive", "finish", "accept")
"""The operations of the lower half: in, worked, out."""


class NoPicture(Exception):
    """matplotlib is not installed."""


def draw(of: Outcome, folder: Path) -> list[Path]:
    """Draw it and return the files. Raises NoPicture where matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPicture("the timeline needs matplotlib: pip install matplotlib") from error
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.0, 6.2), layout="constrained")
        FigureCanvasAgg(figure)
        lives, work = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.4])
        _lives(lives, of)
        _work(work, of)
        paths = [folder / f"timeline.{kind}" for kind in ("svg", "png")]
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=DOTS_PER_INCH)
    return paths


def _lives(axes: Any, of: Outcome) -> None:
    actors = sorted({event.life.partition(".")[0] for event in of.events if event.kind == "life"})
    places = {actor: place for place, actor in enumerate(actors)}
    _bars(axes, of, places, "life", LIFE, 0.5, "alive")
    _bars(axes, of, places, "stop", STOP, 0.5, "stopped past its lease")
    _marks(axes, of, places, "kill", "x", KILL, "killed")
    _marks(axes, of, places, "exit", "^", EXIT, "ended at a COMMIT")
    for first, event in enumerate(_of_kind(of, "crash")):
        until, label = (event.until or event.at) - of.began, None if first else "server stopped"
        axes.axvspan(event.at - of.began, until, color=CRASH, alpha=0.25, linewidth=0, label=label)
    for first, event in enumerate(_of_kind(of, "terminate")):
        label = None if first else "session ended by the server"
        axes.axvline(event.at - of.began, color=TERMINATE, linewidth=0.4, alpha=0.6, label=label)
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(actors)), actors)
    axes.invert_yaxis()
    axes.set_title(f"{of.backend}, seed {of.wish.seed}: lives and faults", loc="left")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=6, fontsize=8)


def _bars(axes: Any, of: Outcome, places: dict[str, int], kind: str, colour: str, height: float, label: str) -> None:
    found = _of_kind(of, kind)
    rows = [places[event.life.partition(".")[0]] for event in found]
    lengths = [(event.until or event.at) - event.at for event in found]
    axes.barh(rows, lengths, height, [event.at - of.began for event in found], color=colour, label=label, linewidth=0)


def _marks(axes: Any, of: Outcome, places: dict[str, int], kind: str, marker: str, colour: str, label: str) -> None:
    found = _of_kind(of, kind)
    rows = [places[event.life.partition(".")[0]] for event in found]
    times = [event.at - of.began for event in found]
    axes.plot(times, rows, marker, color=colour, markersize=4, label=label, zorder=3)


def _work(axes: Any, of: Outcome) -> None:
    operations = of.verdict.evidence.operations
    for name, colour in zip(SHOWN, (WORK, TERMINATE, STOP), strict=True):
        ended = [one.ended for one in operations if one.name == name and one.event == OK and one.ended is not None]
        counts = Counter(int(at - of.began) for at in ended)
        seconds = range(max(counts, default=0) + 1)
        axes.plot(seconds, [counts[second] for second in seconds], color=colour, linewidth=1, label=name)
    for event in _of_kind(of, "calm"):
        axes.axvline(event.at - of.began, color="#444444", linewidth=0.8, linestyle="--")
    axes.set_xlabel("seconds; faults end at the dashed line")
    axes.set_ylabel("answered each second")
    axes.legend(ncols=3, fontsize=8)


def _of_kind(of: Outcome, kind: str) -> Sequence[Event]:
    return [event for event in of.events if event.kind == kind]
