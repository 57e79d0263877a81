"""The table: medians of the rounds, the settings that were best, the durability, and what each does not do."""

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.peers.catalog import Row

MEASURES = ("single", "batch", "process")
HEAD = (
    "| queue | version | puts in one by one, tasks/s | in batches of 100 | processes, tasks/s | at | durability "
    "| what it does not do |\n|---|---|---:|---:|---:|---|---|---|"
)
HOW = (
    "Medians of {rounds} interleaved rounds of {tasks} no-op tasks. Each queue is one process with its own worker, on "
    "an empty database made for the run. Compare only within one table and one durability. "
    "Where the clock starts with the first task, the first fetch (of at most 100) is not counted."
)


@dataclass
class Line:
    """What was seen for one row: answers by measure, the setting that was best, and why there is none."""

    row: Row
    best: tuple[int, int] | None = None
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    trials: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)

    def rate(self, measure: str) -> float | None:
        rates = [answer["tasks_per_second"] for answer in self.answers[measure]]
        return median(rates) if rates else None

    def cell(self, measure: str) -> str:
        if measure in self.faults:
            return f"failed: {plain(self.faults[measure])}"
        if (rate := self.rate(measure)) is not None:
            return f"{rate:,.0f}"
        return "not offered" if measure == "batch" and not self.row.batches else "-"

    def last(self, key: str) -> str:
        last = [answers[-1] for name in reversed(MEASURES) if (answers := self.answers[name])]
        return str(last[0][key]) if last else "-"

    def markdown(self) -> str:
        cells = [self.row.label, self.last("version"), *map(self.cell, MEASURES)]
        settings = f"{self.last('settings')} ({self.row.startup})"
        return f"| {' | '.join([*cells, settings, self.last('durability'), self.row.lacks])} |"

    def json(self) -> dict[str, Any]:
        return {
            "label": self.row.label,
            "backend": self.row.backend,
            "durability": self.last("durability"),
            "medians": {name: self.rate(name) for name in MEASURES},
            "answers": self.answers,
            "trials": self.trials,
            "faults": self.faults,
            "lacks": self.row.lacks,
        }


def plain(text: str) -> str:
    """A text that does not break a cell."""
    return text.replace("|", "/").replace("\n", " ")


def markdown(lines: list[Line], tasks: int, rounds: int) -> str:
    """All tables, one per backend, with how they were measured."""
    said = [HOW.format(rounds=rounds, tasks=tasks)]
    for backend in ("postgresql", "sqlite"):
        rows = [line.markdown() for line in lines if line.row.backend == backend]
        if rows:
            said += ["", f"### {backend}", "", HEAD, *rows]
    return "\n".join(said) + "\n"
