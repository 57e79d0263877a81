"""The benchmarks: every scenario runs on both backends, leaves nothing behind, and hides no lost or double task."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks import bars, comparing, measuring, report, scenarios
from benchmarks.__main__ import main
from benchmarks.bench import Bench, Options
from benchmarks.filling import Fill, fill
from benchmarks.measuring import Spell
from benchmarks.probes import taped
from benchmarks.scenarios import contention, floor, growth
from benchmarks.targets import Place, Target
from benchmarks.workers import Log, Run, window
from recovery import Queue, open_engine

TINY = ["--seconds", "0.2", "--rounds", "1", "--cycles", "3", "--quiet", "--json"]
ASKED_FOR = {
    "workers",
    "batch",
    "tasks_per_second",
    "claim_p50_ms",
    "claim_p99_ms",
    "least_over_most",
    "duplicates",
    "lost",
    "busy_errors",
    "statements_per_task",
    "commits_per_task",
}


@pytest.fixture
def target(empty_url, tmp_path) -> Target:
    """An empty database of this test's own, and nothing of ours in it."""
    return Target(empty_url)


@pytest.fixture
def place(target):
    """A throw-away place in it."""
    with target.fresh() as made:
        yield made


def left_behind(url):
    """The tables of a database, or the files in its folder where it is a file."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return sorted(path.name for path in Path(str(parsed.database)).parent.iterdir())
    engine = open_engine(url)
    names = sa.inspect(engine).get_table_names()
    engine.dispose()
    return names


def points(capsys):
    """What a run printed, point by point."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_contention_prints_one_object_for_each_point_and_leaves_nothing(empty_url, capsys):
    """Each point has what is asked for, nothing was lost or done twice, and the database is as it was."""
    asked = ["contention", "--url", empty_url, "--processes", "1,2", "--batch", "2", "--threads", "2", *TINY]
    before = left_behind(empty_url)
    assert 0 == main(asked)
    found = points(capsys)
    assert [(2, 2), (4, 2)] == [(point["workers"], point["batch"]) for point in found]
    for point in found:
        assert set() == ASKED_FOR - point.keys()
        assert (0, 0) == (point["duplicates"], point["lost"])
        assert point["workers"] == len(point["work_per_worker"])
    assert before == left_behind(empty_url)


@pytest.mark.parametrize("name", ["strategies", "receive", "whole", "floor"])
def test_every_other_scenario_runs(name, empty_url, capsys):
    """Each ends with 0 and has at least one point of its own backend."""
    assert 0 == main([name, "--url", empty_url, "--processes", "1", "--batch", "1", *TINY])
    found = points(capsys)
    assert {(name, sa.make_url(empty_url).get_backend_name())} == {(p["scenario"], p["backend"]) for p in found}
    assert [] == left_behind(empty_url)


def test_growth_and_memory_run(target, monkeypatch):
    """They run with small tables, and say which rows were there."""
    options = Options(seconds=0.1, rounds=1, batch=(1,), rows=200, minute_seconds=0.2)
    cases = growth.cases(Bench(target, options))
    assert ["done", "done", "pending", "future", "expired"] == [fills[0].kind for fills in cases.values()]
    some = dict(list(cases.items())[-2:])
    monkeypatch.setattr(growth, "cases", lambda _: some)
    found = scenarios.run("growth", Bench(target, options))
    assert ["future", "expired", "old"] == [point["kind"] for point in found]
    assert [2000] == [point["tasks"] for point in scenarios.run("memory", Bench(target, options))]


def test_filled_rows_are_what_the_library_would_have_stored(place: Place):
    """The library counts, claims and explains them as its own; nothing else is in the tables."""
    fill(place, Fill("done", 4), Fill("expired", 3, "e"), Fill("future", 2, "f"), Fill("pending", 5, "p"))
    with place.queue() as queue:
        counts = queue.counts()
        assert (14, 7, 3) == (counts.received, counts.open["pending"], counts.open["running"])
        assert (4, 4) == (counts.ended["done"], counts.delivery["pending"])
        claims = queue.claim_batch("w", 100)  # 5 pending and, once settled, the 3 whose lease was over.
        assert 8 == len(claims)
        for claim in claims:
            queue.finish(claim, None)
        assert 12 == queue.counts().ended["done"]


def told(*ids):
    """A run in which one worker was told that these tasks are done."""
    return Run([Log(done=list(ids))], 0.0, 1.0)


def test_a_task_done_twice_or_lost_is_seen(place: Place):
    """What the workers were told is held against the tables."""
    fill(place, Fill("pending", 3))
    with place.queue() as queue:
        claim, other = queue.claim_batch("w", 2)
        queue.finish(claim, None)
    fine = {"duplicates": 0, "lost": 0, "fenced": 0}
    assert fine == contention.verified(place, told(claim.task_id), 3)
    assert fine | {"duplicates": 1} == contention.verified(place, told(claim.task_id, claim.task_id), 3)
    assert fine | {"lost": 1} == contention.verified(place, told(claim.task_id, other.task_id), 3)
    assert fine | {"lost": 1} == contention.verified(place, told(claim.task_id), 4)


@pytest.mark.parametrize("fault", ["duplicates", "lost"])
def test_a_run_with_a_lost_or_double_task_fails(fault, monkeypatch, capsys):
    """The exit code is 1."""
    monkeypatch.setattr(scenarios, "run", lambda name, bench: [bench.point(name, **{fault: 1})])
    assert 1 == main(["contention", "--json", "--quiet"])


def test_only_what_lies_in_the_window_counts():
    """Work counts that ended in the window, and every wait that reached into it; the least is held against the most."""
    spells = [Spell(9.9, 10.05, 10.1, 5), Spell(10.1, 10.2, 10.5, 3), Spell(10.5, 10.9, 11.1, 7)]
    found = contention.measured(Run([Log(spells), Log([Spell(10.0, 10.4, 11.0, 1)])], 10.0, 11.0))
    assert (9, 9.0, [8, 1]) == (found["tasks"], found["tasks_per_second"], found["work_per_worker"])
    assert 0.125 == found["least_over_most"]
    assert (150.0, 400.0) == (found["claim_p50_ms"], found["claim_max_ms"])
    assert 1000.0 == found["longest_wait_ms"]


def test_a_dry_queue_ends_the_window_early():
    """Time in which there was no work left is not held against anybody."""
    assert 0.4 == round(window([Log(dry_at=10.4), Log()], 10.0, 1.0).seconds, 3)
    assert 1.0 == window([Log()], 10.0, 1.0).seconds


def test_statements_and_commits_are_counted_as_they_are_sent(place: Place):
    """One framed transaction with two statements is two statements and one commit; a rollback is none."""
    engine = place.engine()
    table = place.tables.fence_floor
    with taped(engine) as tape, engine.connect() as connection:
        tape.clear()
        connection.execute(sa.update(table).values(floor=1))
        connection.execute(sa.update(table).values(floor=0))
        connection.commit()
        assert (2, 1) == (tape.statements, tape.commits)
        connection.execute(sa.update(table).values(floor=5))
        connection.rollback()
        assert (3, 1) == (tape.statements, tape.commits)
    engine.dispose()


def test_a_tape_does_the_same_work_and_a_wrong_one_is_refused(target):
    """Replayed, the tape ends as many tasks as the library; one that does less cannot pass as quick."""
    bench = Bench(target, Options(rounds=1, cycles=2))
    work = floor.WORKS[0]
    tape = floor._tape(bench, work, 5)
    with floor._floor(bench, work, 5, tape) as step:
        step(5)
    short = floor.Tape(tape.prefix, tape.warm, tape.measured[:2])
    with pytest.raises(RuntimeError, match="of 8 tasks"), floor._floor(bench, work, 5, short) as step:
        step(5)


def test_percentiles_are_measured_values():
    """Nearest rank: never a value that nobody waited."""
    assert {"x_p50_ms": 2000.0, "x_p95_ms": 4000.0, "x_p99_ms": 4000.0, "x_max_ms": 4000.0} == measuring.spread_ms(
        "x", [4.0, 1.0, 3.0, 2.0]
    )
    assert None is measuring.spread_ms("x", [])["x_p50_ms"]


def test_the_closing_table_says_which_bars_are_met():
    """A figure on the right side of its bar is met, on the wrong side it is not, and a missing one is neither."""
    work = "claim+finish, one at a time"
    good = {"scenario": "floor", "backend": "sqlite", "work": work, "over_floor": 1.4}
    rows = "\n".join(report.closing(bars.verdicts([good, good | {"backend": "postgresql", "over_floor": 1.41}])))
    assert f"| {work}: over the floor | SQLite | 1.4 | at most 1.4 | met |" in rows
    assert f"| {work}: over the floor | PostgreSQL | 1.41 | at most 1.4 | NOT MET |" in rows
    assert "| receive one: over the floor | SQLite |  | at most 1.4 | not measured |" in rows
    assert "memory" not in rows


def test_peers_are_compared_with_the_best_of_them(tmp_path):
    """Our best setting over the best of theirs that is as durable, for each measure that somebody else offers."""
    ours = {"label": "recovery, x", "backend": "sqlite", "medians": {"process": 900, "single": 50, "batch": 10}}
    medians = {"a": {"process": 300, "single": 100}, "b": {"process": 200, "single": 100}}
    theirs = [{"label": name, "backend": "sqlite", "medians": some} for name, some in medians.items()]
    theirs += [{"label": "c", "backend": "sqlite", "medians": {"process": 9000}, "durability": "synchronous=NORMAL"}]
    (tmp_path / "peers.json").write_text(json.dumps({"lines": [ours, *theirs]}))
    expected = {"processing_over_best": 3.0, "enqueue_one_over_best": 0.5, "enqueue_batch_over_best": None}
    assert [{"scenario": "peers", "backend": "sqlite"} | expected] == comparing.compared(tmp_path / "peers.json")


def test_the_report_is_written_with_and_without_pictures(tmp_path, capsys, monkeypatch):
    """JSON and Markdown are always written; without matplotlib a sentence says what to install."""
    asked = ["contention", "--processes", "1", "--batch", "1", "--seconds", "0.1", "--quiet", "--out"]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "benchmarks.pictures", raising=False)
    made = [{"scenario": "floor", "backend": "sqlite", "work": "receive one", "over_floor": 1.2}]
    report.save(tmp_path / "without", "floor", [{"sqlite": "3"}], made)
    assert "pip install 'matplotlib" in capsys.readouterr().err
    assert {"floor.json", "floor.md"} == {path.name for path in (tmp_path / "without").iterdir()}
    assert made == json.loads((tmp_path / "without" / "floor.json").read_text())["points"]
    monkeypatch.undo()
    drawn = {"floor.svg", "floor.png"} if importlib.util.find_spec("matplotlib") else set()
    report.save(tmp_path / "with", "floor", [{"sqlite": "3"}], made)
    assert {"floor.json", "floor.md"} | drawn == {path.name for path in (tmp_path / "with").iterdir()}
    assert 0 == main([*asked, str(tmp_path / "run")])
    assert "| 1 | 1 |" in (tmp_path / "run" / "contention.md").read_text()


def test_one_report_of_several_runs(tmp_path, capsys):
    """Points of all files in their order, each machine once, also from a run that was broken off."""
    made = [
        {"scenario": "floor", "backend": "sqlite", "work": "receive one", "over_floor": over} for over in (1.2, 1.3)
    ]
    report.save(tmp_path / "a", "floor", [{"sqlite": "3"}], made[:1])
    (tmp_path / "unfinished.json").write_text(json.dumps(made[1:]))
    files = [str(tmp_path / "a" / "floor.json"), str(tmp_path / "unfinished.json"), str(tmp_path / "a" / "floor.json")]
    assert 0 == main(["report", *files, "--out", str(tmp_path / "all")])
    found = json.loads((tmp_path / "all" / "full.json").read_text())
    assert {"machines": [{"sqlite": "3"}], "points": [*made, made[0]]} == found
    assert "| receive one: over the floor | SQLite | 1.2 | at most 1.4 | met |" in capsys.readouterr().out


def test_the_installed_command_has_the_same_scenarios(tmp_path):
    """`recovery bench` lists them and runs one."""

    def run(*args):
        command = [sys.executable, "-m", "recovery", "bench", *args]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    listed = run("--help").stdout
    assert all(name in listed for name in (*scenarios.NAMES, "peers"))
    done = run("contention", "--processes", "1", "--batch", "1", *TINY)
    assert (0, [0]) == (done.returncode, [json.loads(line)["lost"] for line in done.stdout.splitlines()])


def test_a_database_that_cannot_be_used_is_refused(capsys):
    """The exit code is 2, and a sentence says why."""
    assert 2 == main(["contention", "--url", "mysql://nowhere/x"])
    assert "benchmarks: " in capsys.readouterr().err


def test_the_queue_has_what_the_benchmarks_measure():
    """A renamed verb would silently be measured as something else."""
    assert {"finish_batch", "finish_and_claim", "claim_batch"} <= set(dir(Queue))
