import json
import os
import signal
import time

import pytest

from recovery import Queue, open_engine
from tests.plugins.commands import line, wait_for

CANARY = "c4n4ry"
SECRET = {"secret": CANARY}


@pytest.mark.parametrize(
    ("function", "state", "error", "kept"),
    [
        ("permanent", "failed", "Permanent at work_of.py", f"Permanent: {CANARY}"),
        ("bad_text", "pending", "ValueError at work_of.py", r"ValueError: nul \x00 half \ud800 escape"),
        ("exits", "pending", "SystemExit at work_of.py", "SystemExit: 3"),
        ("not_json", "failed", "the result was refused: result must hold", "the result was refused: result must hold"),
        ("too_big", "failed", "the result was refused: result must be at most", "the result was refused"),
        ("cancels_itself", "pending", "CancelledError at", "CancelledError: "),
        ("database_error", "pending", "IntegrityError at work_of.py", "IntegrityError from a database"),
    ],
)
def test_a_handler_that_fails(command, function, state, error, kept):
    """The task outlives it, with the reason escaped and no database's text; the worker prints where, never the text."""
    (task,) = command.send(line("a", payload=SECRET))
    ran = command.work(function, "--json")
    assert (0, "") == (ran.code, ran.err)
    (told,) = ran.json_lines()
    assert {"task_id", "state", "fence", "attempt", "error"} == told.keys()
    assert (task, state, 1, 1) == (told["task_id"], told["state"], told["fence"], told["attempt"])
    assert told["error"].startswith(error)
    assert CANARY not in ran.out
    with Queue.open(command.url) as queue:
        stored = queue.task(task)
    assert kept == str(stored and stored.last_error)[: len(kept)]


def test_the_last_attempt_fails_for_good(command):
    """An error is retried while there are attempts, then the task is `failed`, and explain tells why in one line."""
    (task,) = command.send(line("a", max_attempts=2))
    ran = command.run("work", "--handler", "work_of:bad_text", "--drain")
    assert (0, ["pending", "failed"]) == (ran.code, [text.split()[0] for text in ran.out.splitlines()])
    told = command.run("explain", task).out
    assert r"it failed: ValueError: nul \x00 half \ud800 escape \x1b[31m line\nfeed" in told
    assert ("\x1b" in told, "\nfeed" in told) == (False, False)


@pytest.mark.parametrize(
    ("function", "result"),
    [
        ("ok", '{"n":1}'),
        ("asynchronous", '{"async":{"n":1}}'),
        ("both", '[{"n":1},1,1]'),
        ("Asked", '"asked"'),
        ("asked.method", '"method"'),
    ],
)
def test_a_handler_that_returns(command, function, result):
    """Its result is stored; what it prints goes to standard error, so that the output stays readable by a program."""
    (task,) = command.send(line("a"))
    ran = command.work(function, "--json")
    assert (0, "done", None) == (ran.code, ran.json_lines()[0]["state"], ran.json_lines()[0]["error"])
    assert ("printed by the handler\n" if function == "ok" else "") == ran.err
    with Queue.open(command.url) as queue:
        stored = queue.task(task)
    assert result == (stored and stored.result)


def test_once_does_one(command):
    """Of two tasks one is done; with nothing to do it ends with 0 and says nothing."""
    command.send(line("a"), line("b"))
    assert 1 == len(command.work("ok").out.splitlines())
    assert 1 == command.counts().open["pending"]
    command.work("ok")
    assert (0, "", "") == tuple(vars(command.work("ok")).values())


@pytest.mark.parametrize("name", ["nonsense", "nowhere:ok", "work_of:nothing", "work_of:HANDLERS", "raises:ok"])
def test_a_handler_that_cannot_be_loaded(command, name):
    """One sentence, exit 2, and no task is touched."""
    (command.folder / "raises.py").write_text(f"raise ValueError({CANARY!r})\n")
    ran = command.run("work", "--handler", name, "--once")
    assert (2, "", 1) == (ran.code, ran.out, len(ran.err.splitlines()))
    assert ("Traceback" in ran.err, CANARY in ran.err) == (False, False)


def test_drain_waits_for_what_another_worker_holds(command):
    """It does not end while a task is held elsewhere, and does the task when that worker died."""
    command.send(line("a"))
    victim = command.working("hangs", "--lease-seconds", 1.5)
    drain = command.start("work", "--handler", "work_of:ok", "--drain")
    with pytest.raises(Exception, match="timed out"):
        drain.wait(1.0)
    victim.kill()
    ran = command.end(drain)
    assert (0, "done", "2") == (ran.code, ran.out.split()[0], ran.out.split()[3])


def test_long_work_keeps_its_lease(command):
    """A handler that outlives its lease several times is done at the first attempt."""
    command.send(line("a"))
    ran = command.work("longer_than_the_lease", "--lease-seconds", 0.5, "--json")
    assert ("done", 1, None) == tuple(ran.json_lines()[0][key] for key in ("state", "attempt", "error"))


def test_cancelled_while_it_works(command):
    """The worker says that its claim is lost, and the task stays cancelled."""
    (task,) = command.send(line("a"))
    worker = command.working("longer_than_the_lease", "--once", "--json", SECONDS="60")
    with Queue.open(command.url) as queue:
        assert queue.cancel(task)
    (command.folder / "go").touch()
    ran = command.end(worker)
    assert (0, "lost") == (ran.code, ran.json_lines()[0]["state"])
    assert 1 == command.counts().ended["cancelled"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("function", ["hangs", "hangs_in_a_callback", "swallows_the_signal"])
def test_a_signal_gives_the_task_back(command, number, function):
    """Whatever the handler makes of it, sent twice at once too: the task is pending now, and the exit is 130."""
    command.send(line("a"))
    worker = command.working(function)
    worker.send_signal(number)
    worker.send_signal(number)
    ran = command.end(worker)
    assert (130, "pending") == (ran.code, ran.out.split()[0])
    assert ran.out.rstrip().endswith(": released")
    assert {"pending": 1, "running": 0} == command.counts().open
    assert "Traceback" not in ran.err


def test_a_second_signal_ends_it_at_once(command):
    """A handler that will not end is ended by the second Ctrl-C; the lease brings its task back."""
    command.send(line("a"))
    worker = command.working("will_not_end")
    worker.send_signal(signal.SIGINT)
    wait_for((command.folder / "first").exists)
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 1.2)
    worker.send_signal(signal.SIGINT)
    assert -signal.SIGINT == command.end(worker).code
    assert {"pending": 0, "running": 1} == command.counts().open


def test_a_busy_database_is_waited_out(command, backend):
    """A worker goes on where the tables are locked for longer than the bound of a verb."""
    command.send(line("a"))
    engine = open_engine(command.url)
    with engine.connect() as connection:
        connection.exec_driver_sql("UPDATE tasks SET hops = hops" if backend == "sqlite" else "LOCK TABLE tasks")
        worker = command.start("work", "--handler", "work_of:ok", "--drain")
        with pytest.raises(Exception, match="timed out"):
            worker.wait(14)
        connection.rollback()
    engine.dispose()
    ran = command.end(worker)
    assert (0, "done") == (ran.code, ran.out.split()[0])


def test_nobody_reads_the_lines(command):
    """The task at hand is stored before the worker ends without a traceback."""
    command.send(line("a"))
    read, write = os.pipe()
    os.close(read)
    ran = command.work("asynchronous", stdout=write)
    os.close(write)
    assert (1, "") == (ran.code, ran.err)
    assert 1 == command.counts().ended["done"]


def test_unsuitable_settings(command):
    """An owner or a lease that cannot be is one sentence and exit 2."""
    for arguments in (("--owner", ""), ("--lease-seconds", "nan")):
        ran = command.work("ok", *arguments)
        assert (2, "", 1) == (ran.code, ran.out, len(ran.err.splitlines()))
    assert 2 == command.run("work", "--handler", "work_of:ok", "--once", "--drain").code
    assert json.loads(command.run("status", "--json").out)["open"] == {"pending": 0, "running": 0}
