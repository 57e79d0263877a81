"""How a worker does a task: a plain or asynchronous function, found by name.

A handler's parameter called `claim` gets the Claim; any other first parameter gets the decoded payload. What it returns
is the task's result; what it raises fails the attempt.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recovery.errors import Misconfigured
from recovery.messages import Claim

Handler = Callable[[Claim], Any]


class Permanent(Exception):
    """Raise it in a handler where another attempt would fail the same way: the task fails at once."""


def load(name: str) -> Handler:
    """Find `MODULE:FUNCTION`, also in the current folder. Raises Misconfigured with what is wrong."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise Misconfigured("a handler is written MODULE:FUNCTION, for example my_agent.tasks:check.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module_name), function_name, None)
    except ModuleNotFoundError as error:
        raise Misconfigured(f"the handler's module cannot be found: {error.name}.") from error
    if not callable(found):
        raise Misconfigured(f"{module_name} has no function {function_name}.")
    return adapted(found)


def adapted(function: Callable[..., Any]) -> Handler:
    """A handler that takes a Claim, whatever the function takes."""
    wants_claim = "claim" in inspect.signature(function).parameters

    def call(claim: Claim) -> Any:
        answer = function(claim=claim) if wants_claim else function(claim.payload)
        return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer

    return call


async def _awaited(answer: Any) -> Any:
    return await answer
