"""`recovery bench`: the benchmarks, from the installed package or from the checkout around it."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import typer

from recovery.errors import Misconfigured

PLACES = ("recovery.benchmarks", "benchmarks")
"""Inside the installed package, or beside it in a checkout."""


def bench(context: typer.Context) -> None:
    """Measure a queue: contention, strategies, growth and more. `recovery bench --help` lists the scenarios."""
    raise typer.Exit(_benchmarks().main(context.args, prog="recovery bench"))


def _benchmarks() -> ModuleType:
    for name in PLACES:
        if importlib.util.find_spec(name) is not None:
            return importlib.import_module(f"{name}.__main__")
    raise Misconfigured("the benchmarks are missing from this installation; install recovery again.")
