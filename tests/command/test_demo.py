from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.plugins.pg_server import PostgresServer

CODE = "import typer; from recovery.cli.demo import demo; typer.run(demo)"
CHECK_VALUE = "reply:bd09939f3bdb800b2ac17a92671ec9f53bb9a79f3c6ce81f465ea21257f41836"
ROOT = Path(__file__).resolve().parents[2]
TAKEN_OVER = "task running, fence 2, attempts 2; no reply; reply id none; effect count 0"
DONE = "task done, fence 2, attempts 2"
STEPS = f"""\
1. message demo-1 is stored and acknowledged: task pending, fence 0, attempts 0; no reply; reply id none; effect count 0
2. worker-1 (process N) claimed it and was killed with SIGKILL: \
task running, fence 1, attempts 1; no reply; reply id none; effect count 0
3. the lease ran out and worker-2 (process N) claimed it with fence 2: {TAKEN_OVER}
4. worker-1's stale commit with fence 1 is refused (Fenced): {TAKEN_OVER}
5. worker-2 committed the result {{"sum":5}} and the reply together: \
{DONE}; reply pending, fence 0, attempts 0; reply id {CHECK_VALUE}; effect count 0
6. the reply reached the receiver and its ACK was lost: \
{DONE}; reply pending, fence 1, attempts 1; reply id {CHECK_VALUE}; effect count 1
7. the same reply id was sent again and the receiver knew it (duplicate): \
{DONE}; reply sent, fence 2, attempts 2; reply id {CHECK_VALUE}; effect count 1
8. message demo-1 was sent again and is a duplicate: \
{DONE}; reply sent, fence 2, attempts 2; reply id {CHECK_VALUE}; effect count 1
check value: {CHECK_VALUE} matches the contract's
""".splitlines()


def run(*arguments: str, temporary: Path | None = None, code: str = CODE) -> subprocess.CompletedProcess[str]:
    """The demo in a process of its own."""
    environment = dict(os.environ)
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


def story(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """What the demo printed, without process ids and times."""
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    return re.sub(r"\+ *\d+\.\d+ s", "+T", re.sub(r"process \d+", "process N", ran.stdout)).splitlines()


def test_the_story_is_told_on_temporary_files(tmp_path):
    """Without a URL every step is as it must be, and nothing is left behind."""
    told = story(run(temporary=tmp_path))
    assert told[: len(STEPS)] == STEPS
    assert sum(line.startswith("    +T") for line in told) == 10
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_differs_ends_it_with_exit_1(tmp_path):
    """The demo says what it expected and what it found, stops there, and cleans up."""
    code = "import typer; from recovery.cli import demo; demo.RECLAIMED = ('running', 7, 2); typer.run(demo.demo)"
    ran = run(temporary=tmp_path, code=code)
    assert ran.returncode == 1
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("NOT AS IT MUST BE: what is stored after step 3: expected task running, fence 7")
    assert "found task running, fence 2" in last
    assert list(tmp_path.iterdir()) == []


def test_the_story_is_the_same_again_and_on_both_backends(empty_url, tmp_path):
    """A database of the caller's own tells what temporary files tell, twice, with a receiver in it as well."""
    wanted = story(run(temporary=tmp_path))
    assert story(run("--url", empty_url)) == wanted
    assert story(run("--url", empty_url, "--receiver-url", empty_url)) == wanted
    assert story(run("--url", empty_url, "--receiver-url", empty_url)) == wanted


def test_prepare_only_prepares(empty_url):
    """--prepare makes the tables, says so, runs nothing, and may be repeated."""
    for _ in range(2):
        assert story(run("--url", empty_url, "--prepare")) == [
            "prepared: the demo's tables (demo_...) of the queue are at this release's schema"
        ]
    engine = sa.create_engine(sa.make_url(empty_url).set(drivername=_driver(empty_url)))
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM demo_inbox")).scalar_one() == 0
    engine.dispose()


def _driver(url: str) -> str:
    return "postgresql+psycopg" if url.startswith("postgresql") else "sqlite"


@pytest.mark.parametrize("arguments", [("--url", "mysql://host/x"), ("--url", ""), ("--prepare",)])
def test_what_cannot_be_opened_is_one_sentence(arguments):
    """A wrong URL, or --prepare without one, ends with exit 2 and one line on stderr."""
    ran = run(*arguments)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert ran.stderr.startswith("recovery demo: ")


def test_an_ordinary_role_tells_it_after_prepare(postgres_server: PostgresServer):
    """A role without DDL rights runs the demo where its tables are prepared, and is told so where they are not."""
    url = postgres_server.create_database()
    role = f"plain_{os.getpid()}"
    own = sa.make_url(url).set(username=role, password="plain").render_as_string(hide_password=False)
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    try:
        _execute(engine, f"CREATE ROLE {role} LOGIN PASSWORD 'plain'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        refused = run("--url", own)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        run("--url", url, "--prepare")
        _execute(engine, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
        _execute(engine, f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
        assert story(run("--url", own))[: len(STEPS)] == STEPS
        assert story(run("--url", own))[: len(STEPS)] == STEPS
    finally:
        engine.dispose()
        postgres_server.drop_database(url)
        _drop_role(postgres_server, role)


def _execute(engine: sa.Engine, *statements: str) -> None:
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def _drop_role(server: PostgresServer, role: str) -> None:
    engine = sa.create_engine(
        sa.make_url(server.admin_url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    _execute(engine, f"DROP ROLE IF EXISTS {role}")
    engine.dispose()
