import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recovery import Queue, Receiver, migrate

ROOT = Path(__file__).resolve().parents[2]
SLOW = """
import os, time
from pathlib import Path
from recovery.examples.check_files import check

def slowly(payload):
    if os.environ.get("HANG"):
        Path("hanging").touch()
        time.sleep(60)
    time.sleep(0.02)
    return check(payload)
"""


def started(folder, *args, module="recovery", **env):
    """A process of the command, in a folder of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, args)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RECOVERY_URL": "sqlite:///q.db", **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder, *args, stdin="", **env):
    """The command, run to its end: exit code, output, errors."""
    process = started(folder, *args, **env)
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err


def line(message_id, **more):
    """One good line of input."""
    return json.dumps({"message_id": message_id, "deadline": time.time() + 600, "payload": {"n": 1}, **more})


def wait_for(path):
    """Wait until a process made a file."""
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path):
    """A folder with a migrated queue `q.db`, a migrated receiver `r.db` and a handler module."""
    migrate(f"sqlite:///{tmp_path}/q.db")
    migrate(f"sqlite:///{tmp_path}/r.db")
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def test_migrate_makes_the_tables_and_prints_them(tmp_path):
    """`migrate` makes a database that opens; `--sql` prints statements and makes nothing."""
    code, out, _ = run(tmp_path, "migrate", "--sql")
    assert (0, True, False) == (code, "CREATE TABLE" in out, (tmp_path / "q.db").exists())
    assert 0 == run(tmp_path, "migrate")[0]
    code, out, _ = run(tmp_path, "status", "--json")
    assert (0, 0) == (code, json.loads(out)["received"])


@pytest.mark.parametrize(
    "bad",
    [
        "[]",
        "{",
        '{"message_id":"b","message_id":"c","deadline":1,"payload":{}}',
        '{"message_id":"b","deadline":NaN,"payload":{}}',
        '{"message_id":"b","deadline":9e9,"payload":{},"who":1}',
        '{"message_id":"b","payload":{}}',
        pytest.param(line("b", sender="somebody-else"), id="somebody-else"),
    ],
)
def test_send_stops_at_the_first_refused_line(folder, bad):
    """Line 2 is refused by its number, line 1 stays stored, line 3 is not read, and a resend is harmless."""
    first, third = line("a"), line("c")
    code, out, err = run(folder, "send", "--as", "me", stdin=f"{first}\n{bad}\n{third}\n")
    assert (1, 1) == (code, len(out.splitlines()))
    assert err.startswith("line 2: ")
    assert "Traceback" not in err
    code, out, _ = run(folder, "send", "--as", "me", stdin=f"{first}\n{third}\n")
    assert (0, [True, False]) == (code, [json.loads(ack)["duplicate"] for ack in out.splitlines()])


def test_four_workers_one_killed_report_every_file_once(folder):
    """Every file has one result and one effect, although a worker was killed while it held a task."""
    files = folder / "files"
    files.mkdir()
    for number in range(20):
        (files / f"{number}.txt").write_text(f"content {number}")
    made = started(folder, files, module="recovery.examples.check_files").communicate(timeout=60)[0]
    (files / "0.txt").write_text("changed")
    (files / "1.txt").unlink()
    assert 0 == run(folder, "send", "--as", "me", stdin=made)[0]
    arguments = ("work", "--handler", "slow:slowly", "--drain", "--lease-seconds", 1)
    victim = started(folder, *arguments, HANG="1")
    wait_for(folder / "hanging")
    others = [started(folder, *arguments) for _ in range(3)]
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=60)
    assert [0, 0, 0] == [other.wait(60) for other in others]
    assert 20 == sum(len(other.communicate()[0].splitlines()) for other in others)
    code, _, err = run(folder, "deliver", "--to", "sqlite:///r.db", "--drain")
    assert (0, "") == (code, err)
    with Queue.open(f"sqlite:///{folder}/q.db") as queue, Receiver.open(f"sqlite:///{folder}/r.db") as receiver:
        results = [json.loads(reply.payload or "")["result"] for reply in queue.replies()]
        assert 20 == receiver.effect_count()
    assert sorted(str(files / f"{number}.txt") for number in range(20)) == sorted(found["path"] for found in results)
    verdicts = [found["verdict"] for found in results]
    assert (18, 1, 1) == tuple(verdicts.count(word) for word in ("match", "mismatch", "missing"))


def test_sigterm_gives_the_task_back(folder):
    """A worker that is told to stop releases its claim and exits 130."""
    run(folder, "send", "--as", "me", stdin=line("a"))
    worker = started(folder, "work", "--handler", "slow:slowly", HANG="1")
    wait_for(folder / "hanging")
    worker.terminate()
    worker.communicate(timeout=30)
    assert 130 == worker.returncode
    assert 1 == json.loads(run(folder, "status", "--json")[1])["open"]["pending"]


def test_status_and_explain(folder):
    """`status` shows four facts, `explain` a story; an unknown task is exit 1 with a sentence."""
    ack = json.loads(run(folder, "send", "--as", "me", stdin=line("a"))[1])
    facts = json.loads(run(folder, "status", "--json")[1])
    assert {"received", "open", "ended", "delivery"} == facts.keys()
    assert (1, 1) == (facts["received"], facts["open"]["pending"])
    assert "delivery" in run(folder, "status")[1]
    code, out, _ = run(folder, "explain", ack["task_id"])
    assert (0, True) == (code, "nobody has claimed it yet" in out)
    assert ack["task_id"] == json.loads(run(folder, "explain", ack["task_id"], "--json")[1])["task_id"]
    code, out, err = run(folder, "explain", "nothing")
    assert (1, "", 1) == (code, out, len(err.splitlines()))


@pytest.mark.parametrize("url", ["nonsense", "mysql://me:s3cret@host/db", "sqlite:///missing.db", "sqlite:///old.db"])
def test_a_database_that_cannot_be_used(tmp_path, url):
    """A bad URL, a missing file and an old schema are one sentence, exit 2, and nothing is made or changed."""
    old = sqlite3.connect(tmp_path / "old.db")
    old.execute("CREATE TABLE recovery_version (version_num TEXT)")
    old.commit()
    old.close()
    before = (tmp_path / "old.db").read_bytes()
    for command in (("status",), ("send", "--as", "me"), ("explain", "x")):
        code, out, err = run(tmp_path, *command, "--url", url)
        assert (2, "", 1) == (code, out, len(err.splitlines()))
        assert ("Traceback" in err, "s3cret" in err) == (False, False)
    assert ["old.db"] == [path.name for path in tmp_path.iterdir()]
    assert before == (tmp_path / "old.db").read_bytes()


def test_deliver_wants_a_receiver_that_is_there(folder):
    """A receiver that was never migrated is not made; the sentence says how."""
    code, _, err = run(folder, "deliver", "--to", "sqlite:///none.db", "--once")
    assert (2, True) == (code, "recovery migrate --url sqlite:///none.db" in err)
    assert not (folder / "none.db").exists()
