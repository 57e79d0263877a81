import asyncio
import functools
import sys

import pytest

from recovery import Claim, Misconfigured
from recovery.handlers import adapted, load

CLAIM = Claim("t", "me", 7, 2, {"n": 1}, 100.0, 200.0)


def takes_payload(payload):
    """Takes the payload."""
    return payload


def takes_claim(claim):
    """Takes the claim."""
    return claim.fence


def takes_both(payload, claim):
    """Takes both."""
    return payload, claim.fence


async def is_async(payload):
    """Answers later."""
    await asyncio.sleep(0)
    return payload


class Called:
    def __call__(self, payload):
        return "called", payload

    def method(self, payload):
        return "method", payload


class Asynchronous:
    async def __call__(self, payload, *, claim):
        return payload, claim.attempt


@pytest.mark.parametrize(
    ("expected", "function"),
    [
        ({"n": 1}, takes_payload),
        (7, takes_claim),
        (({"n": 1}, 7), takes_both),
        ({"n": 1}, is_async),
        (("called", {"n": 1}), Called()),
        (("method", {"n": 1}), Called().method),
        (({"n": 1}, 2), Asynchronous()),
        ({"n": 1}, functools.partial(takes_payload)),
        (({"n": 1},), lambda *values: values),
        (7, lambda *, claim: claim.fence),
        (({"n": 1}, 5), lambda payload, other=5: (payload, other)),
        (["n"], list),
    ],
    ids=range(12),
)
def test_what_a_handler_may_take(expected, function):
    """The payload, the claim by its name, or both; plain or asynchronous; anything that can be called."""
    assert expected == adapted(function)(CLAIM)


@pytest.mark.parametrize(
    "function",
    [lambda: 1, lambda one, two: 1, lambda claim, more: 1, lambda **named: 1],
    ids=["nothing", "two", "more than the claim", "only names"],
)
def test_what_a_handler_may_not_take(function):
    """Nothing, or more than there is, is refused before a task is lost to it."""
    with pytest.raises(Misconfigured, match="the payload, a parameter called claim, or both"):
        adapted(function)


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A current folder with modules, good and bad."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "kept_here.py").write_text(
        "value = 3\n"
        "def good(payload): return 'good'\n"
        "class Group:\n    def method(payload): return 'grouped'\n"
        "class Handler:\n    def __call__(self, payload): return 'made'\n"
        "class Needy:\n    def __init__(self, more): pass\n"
        "class Broken:\n    def __init__(self): raise OSError('c4n4ry')\n"
    )
    (tmp_path / "raises_here.py").write_text("\nraise ValueError('c4n4ry')\n")
    (tmp_path / "exits_here.py").write_text("import sys\nsys.exit('c4n4ry')\n")
    (tmp_path / "wrong_here.py").write_text("def (:\n")
    (tmp_path / "needs_here.py").write_text("import not_installed_anywhere\n")
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("expected", "name"),
    [("good", "kept_here:good"), ("grouped", "kept_here:Group.method"), ("made", "kept_here:Handler")],
)
def test_found_in_the_current_folder(modules, expected, name):
    """A function, one inside a class, and a class, which is called once to make the handler."""
    assert expected == load(name)(CLAIM)


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("a handler is written MODULE:FUNCTION, for example my_agent.tasks:check.", "kept_here"),
        ("a handler is written MODULE:FUNCTION, for example my_agent.tasks:check.", "kept_here:"),
        ("a handler is written MODULE:FUNCTION, for example my_agent.tasks:check.", ":good"),
        ("a handler is written MODULE:FUNCTION, for example my_agent.tasks:check.", ".kept_here:good"),
        ("there is no module 'nowhere_here', neither installed nor in this folder.", "nowhere_here:good"),
        ("there is no module 'nowhere_here', neither installed nor in this folder.", "nowhere_here.inner:good"),
        ("the module 'needs_here' needs 'not_installed_anywhere', which cannot be found.", "needs_here:good"),
        ("the module 'kept_here' has no 'bad'.", "kept_here:bad"),
        ("the module 'kept_here' has no 'Group.bad'.", "kept_here:Group.bad"),
        ("'kept_here:value' cannot be called; name a function.", "kept_here:value"),
        ("the handler 'kept_here:Needy' cannot be loaded: TypeError at __init__.py", "kept_here:Needy"),
        ("the handler 'kept_here:Broken' cannot be loaded: OSError at kept_here.py:10.", "kept_here:Broken"),
        ("the handler 'raises_here:good' cannot be loaded: ValueError at raises_here.py:2.", "raises_here:good"),
        ("the handler 'exits_here:good' cannot be loaded: SystemExit at exits_here.py:2.", "exits_here:good"),
        ("the handler 'wrong_here:good' cannot be loaded: SyntaxError", "wrong_here:good"),
    ],
)
def test_what_cannot_be_loaded(modules, sentence, name):
    """Each is one sentence that says what is wrong and where, and never what an exception said."""
    with pytest.raises(Misconfigured) as refused:
        load(name)
    assert str(refused.value).startswith(sentence)
    assert "c4n4ry" not in str(refused.value)
    assert 1 == len(str(refused.value).splitlines())
