"""How a worker does a task: something that can be called, plain or asynchronous, found by name.

Its first parameter gets the decoded payload; one called `claim` gets the Claim, alone or beside the payload. A class is
called once, without arguments, and what it returns is the handler. What a handler returns is the task's result; what
it raises fails the attempt.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recovery.errors import Misconfigured
from recovery.messages import Claim

Handler = Callable[[Claim], Any]


class Permanent(Exception):
    """Raise it in a handler where another attempt would fail the same way: the task fails at once."""


def load(name: str) -> Handler:
    """Find `MODULE:FUNCTION`, also in the current folder; `MODULE:OBJECT.METHOD` too.

    Raises Misconfigured with what is wrong, without the text of an exception of the module's own.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or module_name.startswith(".") or not function_name:
        raise Misconfigured("a handler is written MODULE:FUNCTION, for example my_agent.tasks:check.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _guarded(name, functools.partial(_imported, module_name))
    try:
        found = _guarded(name, lambda: functools.reduce(getattr, function_name.split("."), module), AttributeError)
    except AttributeError as error:
        raise Misconfigured(f"the module {module_name!r} has no {function_name!r}.") from error
    if isinstance(found, type):
        found = _guarded(name, found)
    if not callable(found):
        raise Misconfigured(f"{name!r} cannot be called; name a function.")
    return adapted(found)


def _imported(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise Misconfigured(f"the module {module_name!r} needs {error.name!r}, which cannot be found.") from error
        raise Misconfigured(f"there is no module {error.name!r}, neither installed nor in this folder.") from error


def _guarded(name: str, step: Callable[[], Any], passed: type[Exception] = Misconfigured) -> Any:
    """Do one step in somebody else's code."""
    try:
        return step()
    except (Misconfigured, passed, KeyboardInterrupt):
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        raise Misconfigured(f"the handler {name!r} cannot be loaded: {at}.") from error


def adapted(function: Callable[..., Any]) -> Handler:
    """A handler that takes a Claim, whatever the function takes. Raises Misconfigured for too many, or nothing."""
    wants_payload, wants_claim = _wanted(function)

    def call(claim: Claim) -> Any:
        named = {"claim": claim} if wants_claim else {}
        answer = function(claim.payload, **named) if wants_payload else function(**named)
        return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer

    return call


def _wanted(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether it takes the payload, and whether the claim."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True, False  # Written in C, and it does not say what it takes.
    names = list(signature.parameters)
    wants_claim = "claim" in names
    wants_payload = names[:1] != ["claim"]
    try:
        signature.bind(*[None] * wants_payload, **({"claim": None} if wants_claim else {}))
    except TypeError as error:
        raise Misconfigured("a handler takes the payload, a parameter called claim, or both, and no more.") from error
    return wants_payload, wants_claim


async def _awaited(answer: Any) -> Any:
    return await answer
