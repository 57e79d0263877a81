"""What is built before a transaction: with one writer at a time, all others would wait for the compiler."""

from __future__ import annotations

import pytest

from recovery import Queue, migrate
from recovery.backend import statement
from tests.plugins.queues import AUTH, SOURCES, envelope

NEW, NEWER = (envelope(name, deadline=4e9) for name in ("new", "newer"))


@pytest.fixture
def built_inside(monkeypatch):
    """The texts that were built while a transaction was open, in a process that has built nothing yet."""
    monkeypatch.setattr(statement, "_statements", {})
    monkeypatch.setattr(statement, "_ready", set())
    found = []
    original = statement.statement

    def watched(connection, build, *arguments):
        before = len(statement._statements)
        made = original(connection, build, *arguments)
        if len(statement._statements) > before and connection.in_transaction():
            found.append(made.text)
        return made

    monkeypatch.setattr(statement, "statement", watched)
    return found


@pytest.mark.parametrize("verb", ["receive", "receive_all", "claim", "claim_batch", "finish", "finish_and_claim"])
def test_no_hot_verb_builds_a_statement_inside_its_transaction(tmp_path, monkeypatch, built_inside, verb):
    """On SQLite everything that a hot verb sends on its way without faults is built before BEGIN."""
    url = f"sqlite:///{tmp_path}/queue.db"
    migrate(url)
    with Queue.open(url, allowed_sources=SOURCES) as queue:
        queue.receive_all([envelope(f"m-{number}", deadline=4e9) for number in range(4)], AUTH)
        claim = queue.claim("w")
        assert claim is not None
        monkeypatch.setattr(statement, "_statements", {})
        monkeypatch.setattr(statement, "_ready", set())
        built_inside.clear()
        {
            "receive": lambda: queue.receive(NEW, AUTH),
            "receive_all": lambda: queue.receive_all([NEW, NEWER], AUTH),
            "claim": lambda: queue.claim("w"),
            "claim_batch": lambda: queue.claim_batch("w", 2),
            "finish": lambda: queue.finish(claim, 1),
            "finish_and_claim": lambda: queue.finish_and_claim(claim, 1),
        }[verb]()
        assert len(statement._statements) >= 2
    assert [] == built_inside
