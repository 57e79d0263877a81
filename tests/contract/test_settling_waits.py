"""While something is settled on the way, a busy or broken database is met by the verb, and never by one row alone."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from recovery import AsyncQueue, Busy, Queue, Unavailable
from tests.contract.swallowing import swallow
from tests.plugins.queues import AUTH, SOURCES, envelope

REFUSING = """
CREATE SEQUENCE tries;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'expired' AND nextval('tries') <= {last} THEN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def late(postgres_database, clock):
    """A queue with one task whose deadline has passed, and one that can be claimed; and what refuses to settle."""
    with (
        Queue.open(postgres_database, allowed_sources=SOURCES, clock=clock) as queue,
        psycopg.connect(postgres_database, autocommit=True) as line,
    ):
        queue.receive(envelope("late", deadline=1010.0), AUTH)
        queue.receive(envelope("next"), AUTH)
        clock.advance(10)
        yield queue, lambda state, last: line.execute(REFUSING.format(state=state, last=last))


def test_a_deadlock_while_settling_is_tried_again(late):
    """The whole verb is tried again, and settles what is due: nothing is left for later."""
    queue, refuse = late
    refuse("40P01", 2)
    assert "w" == queue.claim("w").owner
    assert {"expired": 1} == {state: n for state, n in queue.counts().ended.items() if n}


@pytest.mark.parametrize(("state", "kind"), [("55P03", Busy), ("57014", Busy), ("53100", Unavailable)])
def test_a_database_in_trouble_while_settling(late, state, kind):
    """It is told as what it is, and nothing is claimed: the verb itself would have met it."""
    queue, refuse = late
    refuse(state, 1000)
    with pytest.raises(kind):
        queue.claim("w")
    assert 2 == queue.counts().open["pending"]
    with pytest.raises(kind):
        queue.reconcile()


def test_an_asynchronous_claim_goes_on_without_settling(database_url, clock, stored):
    """One row that cannot be settled holds up nobody in a loop either, in a batch, alone, or after a finish."""

    async def story():
        async with AsyncQueue.open(database_url, allowed_sources=SOURCES, clock=clock) as queue:
            await queue.receive(envelope("stuck", deadline=1010.0), AUTH)
            swallow(stored.engine, "UPDATE", "tasks", "NEW.state = 'expired'")
            for name in ("a", "b", "c"):
                await queue.receive(envelope(name), AUTH)
            clock.advance(10)
            first = await queue.claim("w")
            assert first is not None
            second = await queue.finish_and_claim(first, 1)
            assert second is not None
            third = await queue.claim_batch("w", 5)
            return [first.fence, second.fence, *(claim.fence for claim in third)], (await queue.counts()).ended

    fences, ended = asyncio.run(story())
    assert [1, 1, 1] == fences
    assert {"done": 1} == {state: n for state, n in ended.items() if n}
