"""Named queues and priorities: who gets which task, in which order, and what takes part in identity."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from recovery import InvalidEnvelope, PayloadCollision, Queue
from recovery.admission import admit
from recovery.repositories import claiming
from recovery.schema import tables
from tests.plugins.queues import AUTH, envelope

FINGERPRINTS: list[tuple[dict[str, Any], str]] = [
    ({}, "v1:60ecec7476aaa5006f5a5ebc9dcec28ace5c99882f70fe3f4a1bec6b0f9f3a80"),
    ({"queue": "default", "priority": 0}, "v1:60ecec7476aaa5006f5a5ebc9dcec28ace5c99882f70fe3f4a1bec6b0f9f3a80"),
    ({"queue": "mail"}, "v1:942d0ef370ac1bb211fea4cd14597a6c3c05c0a9c882bed25cc6f2a122badef4"),
    ({"priority": 7}, "v1:dc75c0a7f9263f21f44234f692ecd789440d55faab48aef0960620ae843aa6e7"),
    ({"queue": "mail", "priority": 7}, "v1:985bc530cf397c8b3f06072d5af05c32c6eb94ac207256a18cb75032732c4d5a"),
]
DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"queue": "mail"}),
    ({}, {"priority": 1}),
    ({"queue": "mail"}, {}),
    ({"priority": 1}, {"priority": 2}),
    ({"queue": "mail"}, {"queue": "Mail"}),
    ({"queue": "mail", "priority": 1}, {"queue": "mail"}),
]
HOSTILE = [
    "'; DROP TABLE tasks; --",
    "{a,b}",
    '"',
    "\\",
    "%s",
    ":p_now",
    "NULL",
    " ",
    "\u00e9",
    "\U0001f600",
    "q" * 128,
]
BAD_NAMES = ["", "q" * 129, "a\0b", "a\nb", "\ud800", 5, None, True, b"mail"]
BAD_PRIORITIES = [True, False, -1, 10, 1.0, "1", None, 2**70]
BAD_QUEUES: list[Any] = [
    "default",
    (),
    [],
    None,
    {"default"},
    {"default": 1},
    5,
    tuple(f"q-{n}" for n in range(33)),
    *[("default", name) for name in BAD_NAMES],
]


def sent(queue, message_id="m-1", /, **changes):
    """The task id of a message that was stored."""
    return queue.receive(envelope(message_id, **changes), AUTH).task_id


def ids(held):
    """The task ids of claims."""
    return [claim.task_id for claim in held]


def change(stored, task_id, **values):
    """Damage or move one task from outside."""
    tasks = tables().tasks
    with stored.engine.begin() as connection:
        connection.execute(sa.update(tasks).where(tasks.c.task_id == task_id).values(**values))


# What is accepted


def test_a_bad_queue_or_priority_is_refused(queue, stored):
    """A queue is a text key, a priority an int from 0 to 9, never a bool; a refusal names it and writes nothing."""
    bad: list[tuple[str, Any]] = [("priority", priority) for priority in BAD_PRIORITIES] + [
        ("queue", name) for name in BAD_NAMES
    ]
    for field, value in bad:
        with pytest.raises(InvalidEnvelope) as caught:
            queue.receive(envelope(**{field: value}), AUTH)
        assert field == caught.value.field
    assert [] == stored.rows("inbox")


def test_bad_queues_of_a_claim_are_refused(queue, stored):
    """A claim asks a tuple or list of 1 to 32 text keys, never one bare text; a refusal holds and finishes nothing."""
    sent(queue)
    sent(queue, "held", queue="held")
    held = queue.claim("w", ("held",))
    before = stored.contents()
    for queues in BAD_QUEUES:
        for verb, more in (("claim", ("w",)), ("claim_batch", ("w", 5)), ("finish_and_claim", (held, 1))):
            with pytest.raises(InvalidEnvelope) as caught:
                getattr(queue, verb)(*more, queues)
            assert "queues" == caught.value.field
    assert before == stored.contents()


def test_a_list_and_32_names_are_accepted(queue):
    """A list does as well as a tuple, up to 32 names, and a name that stands twice is asked once."""
    first = sent(queue, queue="q-31")
    assert first == queue.claim("w", [f"q-{n}" for n in range(32)]).task_id
    second = sent(queue, "m-2", queue="q-1")
    assert [second] == ids(queue.claim_batch("w", 5, ["q-1", "q-1", "q-2", "q-1"]))


def test_a_queue_name_is_a_text_key(queue):
    """What a queue is called is data: it is stored and asked for by its bytes, and nothing else is found by it."""
    stored = [sent(queue, f"m-{number}", queue=name) for number, name in enumerate(HOSTILE)]
    assert HOSTILE == [queue.task(task_id).queue for task_id in stored]
    assert queue.claim("w") is None
    assert [[task_id] for task_id in stored] == [ids(queue.claim_batch("w", 50, (name,))) for name in HOSTILE]


def test_queues_are_told_apart_by_bytes(queue):
    """Case, blanks and Unicode normal forms make different queues."""
    names = ["mail", "Mail", "mail ", "\u00e9", "e\u0301"]
    stored = [sent(queue, f"m-{n}", queue=name) for n, name in enumerate(names)]
    assert [[one] for one in stored] == [ids(queue.claim_batch("w", 5, (name,))) for name in names]


# Identity


def test_golden_fingerprints(queue):
    """The default queue and priority take no part in the fingerprint; others do, under their names."""
    for changes, fingerprint in FINGERPRINTS:
        admitted = admit(envelope(**changes), AUTH, queue.settings)
        assert fingerprint == admitted.fingerprint
    last, expected = FINGERPRINTS[-1]
    assert expected == queue.task(sent(queue, **last)).fingerprint


def test_another_queue_or_priority_is_a_collision(queue, stored):
    """The same identity for another queue or priority is refused, and what is stored stays; the same is a duplicate."""
    for number, (first, second) in enumerate(DIFFERENT):
        one = envelope(f"m-{number}", **first)
        queue.receive(one, AUTH)
        before = stored.contents()
        with pytest.raises(PayloadCollision):
            queue.receive(envelope(f"m-{number}", **second), AUTH)
        assert queue.receive(one, AUTH).duplicate
        assert before == stored.contents()


# Order


def test_order_is_priority_then_time_then_arrival(queue, clock):
    """The highest priority first, then what became due first, then in order of arrival."""
    again = sent(queue, "again", priority=5)
    queue.fail(queue.claim("w"), "later")
    low = [sent(queue, f"low-{n}") for n in range(2)]
    clock.advance(1)
    five = [sent(queue, f"five-{n}", priority=5) for n in range(2)]
    clock.advance(1)
    after = sent(queue, "after", priority=5)
    nine = sent(queue, "nine", priority=9)
    expected = [nine, *five, again, after, *low]
    assert expected[:3] == ids(queue.claim_batch("w", 3))
    assert expected[3:] == [queue.claim("w").task_id for _ in range(4)]


def test_every_priority_in_order(queue):
    """All ten priorities are asked, from 9 down to 0."""
    stored = {number: sent(queue, f"m-{number}", priority=number) for number in (3, 0, 9, 7, 1, 4, 8, 2, 6, 5)}
    assert [stored[number] for number in range(9, -1, -1)] == ids(queue.claim_batch("w", 20))


def test_several_queues_are_merged(queue, clock):
    """Asked together, queues are one: their names play no part in the order, nor does the order of asking."""
    expected = []
    for number in range(4):
        expected += [sent(queue, f"{name}-{number}", queue=name) for name in ("b", "a", "c")]
        clock.advance(0.5)
    urgent = sent(queue, "urgent", queue="c", priority=1)
    expected.insert(0, urgent)
    assert expected[:5] == ids(queue.claim_batch("w", 5, ("a", "b", "c")))
    assert expected[5:8] == [queue.claim("w", ("c", "b", "a")).task_id for _ in range(3)]
    assert expected[8:] == ids(queue.claim_batch("w", 9, ["b", "c", "a"]))


def test_another_queue_is_never_handed_out(queue):
    """A claim gets what is in its queues and nothing else, however urgent that is."""
    sent(queue, "mail", queue="mail", priority=9)
    assert (None, [], None) == (queue.claim("w"), queue.claim_batch("w", 5), queue.claim("w", ("other", "Mail")))
    mine = sent(queue, "mine")
    held = queue.claim("w")
    assert (mine, None) == (held.task_id, queue.finish_and_claim(held, 1))
    assert 1 == queue.counts().open["pending"]


def test_a_retry_stays_where_it_was(queue, clock):
    """A task that failed, was released, or lost its lease keeps its queue and priority, and is had there again."""
    task_id = sent(queue, queue="mail", priority=4, max_attempts=4)
    asked = ("mail",)
    queue.fail(queue.claim("w", asked), "again")
    clock.advance(2)
    queue.release(queue.claim("w", asked))
    queue.claim("w", asked)
    clock.advance(10)
    assert queue.claim("w") is None
    assert ("pending", "mail", 4) == (
        queue.task(task_id).state,
        queue.task(task_id).queue,
        queue.task(task_id).priority,
    )
    other = sent(queue, "higher", queue="mail", priority=5)
    assert [other, task_id] == ids(queue.claim_batch("w", 5, asked))


def test_tasks_that_are_not_due_hide_nothing(queue, clock):
    """A hundred tasks of the highest priority that are not due yet do not stand before one that is."""
    for number in range(100):
        sent(queue, f"m-{number}", priority=9)
    for claim in queue.claim_batch("w", 100):
        queue.fail(claim, "later")
    plain = sent(queue, "plain")
    assert [plain] == ids(queue.claim_batch("w", 5))
    assert queue.claim("w") is None
    clock.advance(2)
    assert 100 == len(queue.claim_batch("w", 200))


def test_limit_goes_over_all_queues(queue):
    """A limit is for all queues and priorities together, from 1 to 10,000 and nothing else."""
    for number in range(6):
        sent(queue, f"m-{number}", queue="ab"[number % 2], priority=number)
    assert 4 == len(queue.claim_batch("w", 4, ("a", "b")))
    assert 2 == len(queue.claim_batch("w", 10_000, ("a", "b")))
    for limit in (0, -1, 10_001, True, 1.0, None):
        with pytest.raises(InvalidEnvelope):
            queue.claim_batch("w", limit)


def test_what_is_due_is_settled_in_every_queue(queue, clock):
    """A claim settles what is due whatever queue it stands in, so that a queue nobody asks is not forgotten."""
    late = sent(queue, "late", queue="mail", deadline=1005.0)
    held = sent(queue, "held", queue="other", max_attempts=1)
    queue.claim("w", ("other",))
    clock.advance(10)
    assert queue.claim("w") is None
    assert ("expired", "failed") == (queue.task(late).state, queue.task(held).state)


# What comes in behind a mark


class Moments:
    """Stands in for the time module where marks are kept: seconds that pass only when they are told to."""

    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds


@pytest.fixture
def moments(monkeypatch):
    """The seconds after which the whole is looked at again."""
    found = Moments()
    monkeypatch.setattr(claiming, "time", found)
    return found


@pytest.fixture
def looked(queue, clock, moments):
    """A connection that took a task at 1010 and another one at 1015, with two more that are to be had."""
    clock.advance(10)
    sent(queue, "taken")
    queue.claim("w")
    clock.advance(5)
    held = sent(queue, "held")
    assert held == queue.claim("w").task_id
    return [sent(queue, "next"), sent(queue, "last")], held


def test_a_row_behind_the_mark_is_not_lost(queue, stored, looked):
    """A task that comes in late, with an older time, is handed out at once where nothing else is claimable."""
    others, _ = looked
    late = sent(queue, "late")
    change(stored, late, available_at=1001.0)
    assert sorted([*others, late]) == sorted(queue.claim("w").task_id for _ in range(3))
    assert queue.claim("w") is None


def test_a_row_behind_the_mark_is_first_after_a_second(queue, stored, moments, looked):
    """Every second the whole is looked at, and then the order is that of the contract, whenever a row came in."""
    others, _ = looked
    late = sent(queue, "late")
    change(stored, late, available_at=1001.0)
    moments.seconds += claiming.WHOLE_SECONDS
    assert [late, *others] == ids(queue.claim_batch("w", 5))


def test_a_second_that_passes_in_the_database_counts(queue, stored, moments, looked, monkeypatch):
    """When the second is over while the database works, the very next look is at the whole."""
    send = claiming._send

    def slow(*args, **kwargs):
        answer = send(*args, **kwargs)
        moments.seconds += claiming.WHOLE_SECONDS
        return answer

    monkeypatch.setattr(claiming, "_send", slow)
    late = sent(queue, "late")
    change(stored, late, available_at=1001.0)
    assert late in [queue.claim("w").task_id for _ in range(2)]


def test_a_row_in_the_margin_is_first(queue, stored, looked):
    """A sender may take a little while from its reading of the clock to its commit, and is not overtaken."""
    others, _ = looked
    late = sent(queue, "late")
    change(stored, late, available_at=1014.9)
    assert [late, *others] == ids(queue.claim_batch("w", 5))


def test_another_queue_or_priority_has_its_own_mark(queue, stored, looked):
    """How far was looked counts for one queue and one priority only."""
    other = sent(queue, "other", queue="mail")
    urgent = sent(queue, "urgent", priority=1)
    for one in (other, urgent):
        change(stored, one, available_at=1001.0)
    assert [urgent] == ids(queue.claim_batch("w", 1))
    assert [other] == ids(queue.claim_batch("w", 1, ("mail",)))


def test_a_lease_that_ended_behind_the_mark(queue, stored, moments, looked):
    """A lease that was over before the last look is settled within the second, and its task handed out again."""
    others, held = looked
    change(stored, held, lease_until=1012.0)
    moments.seconds += claiming.WHOLE_SECONDS
    assert sorted([*others, held]) == sorted(ids(queue.claim_batch("w", 5)))


def test_a_lease_that_ended_behind_the_mark_at_once(queue, stored, looked):
    """A claim that finds nothing else looks at the whole, and takes a lost lease back before it says so."""
    queue.claim_batch("w", 5)
    _, held = looked
    change(stored, held, lease_until=1012.0)
    assert [held] == ids(queue.claim_batch("w", 5))


def test_a_deadline_that_passed_behind_the_mark(queue, stored, moments, looked):
    """A deadline that was over before the last look is settled within the second."""
    others, _ = looked
    change(stored, others[0], deadline=1012.0)
    moments.seconds += claiming.WHOLE_SECONDS
    assert [others[1]] == ids(queue.claim_batch("w", 5))
    assert "expired" == queue.task(others[0]).state


def test_a_deadline_that_passed_behind_the_mark_at_once(queue, stored, looked):
    """A claim that finds nothing else looks at the whole, and ends what is over before it says so."""
    others, _ = looked
    queue.finish(queue.claim("w"), 1)
    change(stored, others[1], deadline=1012.0)
    assert queue.claim("w") is None
    assert "expired" == queue.task(others[1]).state


def test_a_reply_behind_the_mark_is_not_lost(queue, stored, clock, moments):
    """Replies have marks too: an older one that comes in late is handed out at once where nothing else is."""
    clock.advance(10)
    for name in ("a", "b", "c"):
        queue.cancel(sent(queue, name))
    queue.claim_reply("d")
    outbox = tables().outbox
    late = queue.replies(sent(queue, "late", hops=9))[0].reply_id
    with stored.engine.begin() as connection:
        connection.execute(sa.update(outbox).where(outbox.c.reply_id == late).values(available_at=1001.0))
    moments.seconds += claiming.WHOLE_SECONDS
    assert late == queue.claim_reply("d").reply_id
    with stored.engine.begin() as connection:
        back = {"state": "pending", "owner": None, "lease_until": None, "available_at": 1001.0}
        connection.execute(sa.update(outbox).where(outbox.c.reply_id == late).values(**back))
    assert 3 == len({queue.claim_reply("d").reply_id for _ in range(3)})
    assert queue.claim_reply("d") is None


def test_a_mark_is_kept(postgres_database, clock, moments):
    """Where marks are kept, a row that is behind one waits for what is in front; else these would test nothing."""
    with Queue.open(postgres_database, allowed_sources={"agent-a"}, clock=clock) as queue:
        for name in ("a", "b", "c"):
            sent(queue, name)
        queue.claim("w")
        late = sent(queue, "late")
        with queue.engine.begin() as connection:
            connection.execute(
                sa.update(tables().tasks).where(tables().tasks.c.task_id == late).values(available_at=1.0)
            )
        taken = [claim.task_id for _ in range(3) for claim in queue.claim_batch("w", 1)]
        assert [False, False, True] == [late == one for one in taken]


def test_settling_that_was_left_out_sets_no_mark(queue, clock, stored, moments, looked):
    """A claim that did not look for what is due leaves it to the next one."""
    _, held = looked
    clock.advance(11)
    assert 1 == len(queue.claim_batch("w", 1, settle=False))
    queue.claim_batch("w", 1)
    assert "pending" == queue.task(held).state
