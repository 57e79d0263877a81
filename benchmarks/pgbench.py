"""A tape through pgbench: the server and the wire alone, without Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from recovery.testing.torture.server import folders

from .probes import Call
from .targets import Place

PATIENCE_SECONDS = 600
LATENCY = re.compile(r"latency average = ([\d.]+) ms")


def program() -> str | None:
    """Where pgbench is, if it is anywhere."""
    found = [str(folder) for folder in folders()]
    return shutil.which("pgbench") or shutil.which("pgbench", path=os.pathsep.join(found))


def milliseconds(place: Place, calls: Sequence[Call]) -> float:
    """How long the whole tape took, in milliseconds; NaN where there is no pgbench."""
    found = program()
    if found is None:
        return float("nan")
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder:
        script = Path(folder) / "tape.sql"
        script.write_text("\n".join(_lines(place, calls)) + "\n")
        done = subprocess.run(  # noqa: S603 - a program of this machine's PostgreSQL, with arguments of ours
            [found, "--no-vacuum", "--client=1", "--transactions=1", "--protocol=simple", f"--file={script}"],
            env=os.environ | _environment(place),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    latency = LATENCY.search(done.stdout)
    if done.returncode or latency is None:
        raise RuntimeError(f"pgbench failed: {done.stderr.strip() or done.stdout.strip()}")
    return float(latency[1])


def _environment(place: Place) -> dict[str, str]:
    url = sa.make_url(place.url)
    query = {name: value for name, value in url.query.items() if isinstance(value, str)}
    named = {
        "PGHOST": url.host or query.get("host"),
        "PGPORT": url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
    }
    return {name: str(value) for name, value in named.items() if value is not None}


def _lines(place: Place, calls: Sequence[Call]) -> Iterator[str]:
    """One statement a line, its parameters written out; what was one message stays one message."""
    import psycopg

    engine = place.engine()
    pooled = engine.raw_connection()
    try:
        cursor = psycopg.ClientCursor(pooled.driver_connection)  # type: ignore[arg-type]
        for call in calls:
            yield from (_one_message(text) for text in _texts(cursor, call))
    finally:
        pooled.close()
        engine.dispose()


def _texts(cursor: Any, call: Call) -> list[str]:
    if call.what in ("commit", "rollback"):
        return [call.what.upper()]
    if call.what == "executemany":
        return [cursor.mogrify(call.text, row) for row in call.parameters]
    return [call.text if call.parameters is None else cursor.mogrify(call.text, call.parameters)]


def _one_message(text: str) -> str:
    flat = " ".join(text.split("\n"))
    return (flat.replace(";", r"\;") if flat.startswith("BEGIN") else flat) + ";"
