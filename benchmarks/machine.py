"""On what a figure was measured: versions, settings that decide durability, the class of the machine, its disk."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import recovery
from recovery import open_engine
from recovery.backend import parse, sqlite_module

from .measuring import median
from .targets import Target

SYNCS = 50
SERVER_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "wal_level")


def facts(target: Target) -> dict[str, Any]:
    """Everything that a reader has to know beside a figure. Holds no name of a host, a person or a path."""
    found: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "recovery": recovery.__version__,
        "python": platform.python_version(),
        "sqlalchemy": sa.__version__,
        "machine": f"{_cores()} cores, {_processor()}, {_memory_gib()} GiB, {platform.system()} {platform.machine()}",
        "source": target.source,
    }
    return found | (_sqlite(target) if target.backend == "sqlite" else _server(target))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown processor")


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3)


def _sqlite(target: Target) -> dict[str, Any]:
    database = sa.make_url(target.url).database
    folder = str(Path(database).absolute().parent) if database else tempfile.gettempdir()
    module = sqlite_module(parse(target.url)) if database else sqlite3
    return {
        "sqlite": module.sqlite_version if module else sqlite3.sqlite_version,
        "durability": "journal_mode=WAL, synchronous=FULL",
        "disk_sync_ms": disk_sync_ms(folder),
    }


def disk_sync_ms(folder: str) -> float:
    """How long one fdatasync of a page takes in this folder: the price of a commit, which no library can lower."""
    times = []
    sync = getattr(os, "fdatasync", os.fsync)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(b"\0" * 4096)
            file.flush()
            began = time.perf_counter()
            sync(file.fileno())
            times.append(time.perf_counter() - began)
    return round(median(times) * 1000, 3)


def _server(target: Target) -> dict[str, Any]:
    import psycopg

    engine = open_engine(target.url)
    try:
        with engine.connect() as connection:
            shown = {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in SERVER_SETTINGS}
    finally:
        engine.dispose()
    version = str(shown.pop("server_version"))
    said = ", ".join(f"{name}={value}" for name, value in shown.items())
    return {"postgresql": version.partition(" ")[0], "psycopg": psycopg.__version__, "durability": said}
