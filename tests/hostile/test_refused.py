"""Every refused value of contract 2 through every public door: the typed refusal that names it, and no row anywhere."""

from __future__ import annotations

from functools import partial

import pytest

from recovery import Fenced, ManualClock, Unauthorized
from tests.hostile.judging import received, wrong_envelopes, wrong_senders, wrong_with
from tests.hostile.refused_values import (
    ENVELOPES,
    NOT_ENVELOPES,
    QUEUES,
    SENDER,
    Row,
    good,
    int_rows,
    result_rows,
    text_rows,
)
from tests.hostile.ways import WAYS, Way, raised
from tests.plugins.queues import AUTH


@pytest.fixture(params=WAYS)
def way(request, database_url):
    """Each way to the verbs, at 1000 by a manual clock."""
    clock = ManualClock(1000.0)
    made = Way(request.param, database_url, allowed_sources={SENDER}, clock=clock)
    yield made
    made.end()


def ended(way):
    """Whether the way could be ended without an error."""
    way.end()
    return True


def unchanged(way, stored, before):
    """Whether nothing was written, also after the caller's own commit."""
    way.end()
    return before == stored.contents()


def test_envelopes(way, stored):
    """A field that breaks its rule is InvalidEnvelope, by every verb that takes an envelope."""
    before = stored.contents()
    assert {} == wrong_envelopes(way, ENVELOPES)
    assert unchanged(way, stored, before)


def test_authority(way, stored):
    """Whoever is not an allowed AuthContext that equals the sender is Unauthorized, which is a ValueError."""
    before = stored.contents()
    assert {} == wrong_senders(way)
    assert unchanged(way, stored, before)


def test_not_an_envelope(way, stored):
    """Only an Envelope is looked at, before the authority is."""
    before = stored.contents()
    for value in NOT_ENVELOPES:
        row = Row(type(value).__name__, "envelope", value)
        found = received(way, value, None, before=0)
        assert dict.fromkeys(found) == {verb: wrong_with(error, row) for verb, error in found.items()}, row
    assert unchanged(way, stored, before)


def test_the_order(way):
    """Authority is named before structure, and structure before the size and content of the payload."""
    all_wrong = {"message_id": "", "sender": "agent-b", "deadline": True, "hops": -1, "payload": {"a": "x" * 70_000}}
    assert {Unauthorized} == {type(error) for error in received(way, good(**all_wrong), AUTH).values()}
    mine = {**all_wrong, "sender": SENDER, "message_id": "m"}
    assert {"deadline"} == {getattr(error, "field", "") for error in received(way, good(**mine), AUTH).values()}


def test_results(way, stored):
    """A result that breaks the rules is refused by every verb that takes one, and the claim stays valid."""
    way.verbs.receive(good(), AUTH)
    claim = way.verbs.claim("w")
    wrong: dict = {}
    for row in result_rows():
        found = {
            "finish": raised(partial(way.verbs.finish, claim, row.value)),
            "finish_and_claim": raised(partial(way.verbs.finish_and_claim, claim, row.value)),
            "finish_batch": way.verbs.finish_batch([(claim, row.value)])[0].error,
        }
        wrong |= {(str(row), verb): why for verb, error in found.items() if (why := wrong_with(error, row))}
    assert {} == wrong
    assert "running" == way.verbs.task(claim.task_id).state
    way.verbs.finish(claim, None)
    assert "null" == way.verbs.task(claim.task_id).result
    assert ended(way)
    assert ["received", "claimed", "finished", "task done"] == [row["why"] for row in stored.rows("journal")]


def test_owners_limits_and_queues(way, stored):
    """What a claim is asked with has the same rules, also where it first only looks because the queue was idle."""
    before = stored.contents()
    wrong: dict = {}
    for verb, row, call in asked(way.verbs):
        for _ in range(2):
            way.verbs.claim("w")
            way.verbs.claim_batch("w", 1)
            way.verbs.claim_reply("d")
            way.verbs.claim_reply_batch("d", 1)
            if why := wrong_with(raised(call), row):
                wrong[str(row), verb] = why
    if not way.is_bound:
        for row in text_rows("owner"):
            if why := wrong_with(raised(partial(way.verbs.dispatch_once, Silent(), row.value)), row):
                wrong[str(row), "dispatch_once"] = why
    assert {} == wrong
    assert unchanged(way, stored, before)


class Silent:
    """A receiver that is never reached."""

    def accept(self, reply_id, payload):
        """Be reached."""
        raise AssertionError((reply_id, payload))


def asked(verbs):
    """Each verb that is asked with an owner, queues or a limit, and the row that it must refuse."""
    for row in text_rows("owner"):
        bad = row.value
        yield "claim", row, partial(verbs.claim, bad)
        yield "claim_batch", row, partial(verbs.claim_batch, bad, 1)
        yield "claim_reply", row, partial(verbs.claim_reply, bad)
        yield "claim_reply_batch", row, partial(verbs.claim_reply_batch, bad, 1)
    for row in QUEUES:
        bad = row.value
        yield "claim", row, partial(verbs.claim, "w", bad)
        yield "claim_batch", row, partial(verbs.claim_batch, "w", 1, bad)
        yield "has_open", row, partial(verbs.has_open, bad)
    for row in int_rows("limit", 1, 10_000):
        bad = row.value
        yield "claim_batch", row, partial(verbs.claim_batch, "w", bad)
        yield "claim_reply_batch", row, partial(verbs.claim_reply_batch, "d", bad)
    for row in int_rows("limit", 1, 100_000):
        yield "replies", row, partial(verbs.replies, limit=row.value)


def test_the_next_queues(way, stored):
    """`finish_and_claim` refuses what `claim` refuses, and has finished nothing."""
    way.verbs.receive(good(), AUTH)
    claim = way.verbs.claim("w")
    found = {
        str(row): wrong_with(raised(partial(way.verbs.finish_and_claim, claim, 1, row.value)), row) for row in QUEUES
    }
    assert set(found.values()) == {None}
    assert "running" == way.verbs.task(claim.task_id).state
    assert ended(way)
    assert [] == stored.rows("outbox")


def test_ids_that_break_the_rules_find_nothing(way, stored):
    """Looking something up by an id that can be no id is no error: it finds nothing, and cancels nothing."""
    way.verbs.receive(good(), AUTH)
    for row in text_rows("task_id"):
        bad = row.value
        found = (way.verbs.task(bad), way.verbs.explain(bad), way.verbs.cancel(bad))
        assert (None, None, False) == found, row
        assert bad is None or [] == way.verbs.replies(bad), row
    assert ended(way)
    assert ["pending"] == [row["state"] for row in stored.rows("tasks")]


def test_failures_are_never_refused(way):
    """Whatever the reason is, the failure is stored: escaped where no backend has it, and cut at 2 KiB."""
    for number, row in enumerate(text_rows("reason")):
        way.verbs.receive(good(f"m-{number}"), AUTH)
        claim = way.verbs.claim("w")
        assert "failed" == way.verbs.fail(claim, row.value, retryable=False), row
        said = way.verbs.task(claim.task_id).reason
        assert len(said.encode()) <= 2048, row
        assert ("\0" in said, type(raised(partial(way.verbs.fail, claim, row.value)))) == (False, Fenced), row
