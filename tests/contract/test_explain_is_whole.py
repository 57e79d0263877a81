"""What `explain` tells is one picture, whatever others do while it looks."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import Queue, open_engine
from tests.plugins.queues import AUTH, SOURCES, envelope


@pytest.fixture
def other(database_url, clock):
    """Another program's queue in the same database."""
    with Queue.open(database_url, allowed_sources=SOURCES, backoff=2.0, clock=clock) as queue:
        yield queue


def engine_of(queue):
    """The engine whose statements can be listened to; an asynchronous one has a plain one inside."""
    return getattr(queue.engine, "sync_engine", queue.engine)


def picture(story):
    """What of a story must fit: the task's state, the reply's, and the last step of each in the timeline."""
    last = {step.subject: step.to_state for step in story.timeline}
    return story.task.state, story.reply and story.reply.state, last.get("task"), last.get("reply")


def looked(engine, explain, act, turn):
    """The story, where somebody acts after statement number `turn` (from 0) of the look; None where it has fewer."""
    seen: list[None] = []

    def after(*_: object):
        seen.append(None)
        if len(seen) == turn + 1:
            act()

    sa.event.listen(engine, "after_cursor_execute", after)
    try:
        story = explain()
    finally:
        sa.event.remove(engine, "after_cursor_execute", after)
    return story if len(seen) > turn else None


BEFORE = ("running", None, "running", None)
AFTER = ("done", "pending", "done", "pending")
TAKEN = ("done", "sending", "done", "sending")


@pytest.mark.parametrize("turn", range(4))
def test_a_task_that_ends_while_it_is_explained(queue, other, turn):
    """The story is from before the task ended or from after it, never some of each."""
    task_id = queue.receive(envelope(), AUTH).task_id
    claim = queue.claim("w")
    story = looked(engine_of(queue), lambda: queue.explain(task_id), lambda: other.finish(claim, 1), turn)
    assert story is None or picture(story) in (BEFORE, AFTER)
    assert (story is None) or story.timeline[-1].at <= story.as_of
    assert turn > 0 or story is not None


@pytest.mark.parametrize("turn", range(4))
def test_a_reply_that_is_taken_while_it_is_explained(queue, other, turn):
    """The same for the reply: what is said of its delivery is what the timeline ends with."""
    task_id = queue.receive(envelope(), AUTH).task_id
    queue.finish(queue.claim("w"), 1)
    story = looked(engine_of(queue), lambda: queue.explain(task_id), lambda: other.claim_reply("d"), turn)
    assert story is None or picture(story) in (AFTER, TAKEN)
    assert turn > 0 or story is not None


@pytest.mark.parametrize("turn", range(4))
def test_explained_inside_the_callers_transaction(queue, other, database_url, clock, turn):
    """In the caller's own transaction, at READ COMMITTED, it is one picture too."""
    task_id = queue.receive(envelope(), AUTH).task_id
    claim = queue.claim("w")
    engine = open_engine(database_url)
    here = Queue(engine, clock=clock)
    with engine.connect() as connection, connection.begin():
        explain = here.on(connection).explain
        story = looked(engine, lambda: explain(task_id), lambda: other.finish(claim, 1), turn)
    engine.dispose()
    assert story is None or picture(story) in (BEFORE, AFTER)
    assert turn > 0 or story is not None


def test_the_clock_of_the_picture(door, database_url):
    """With the database's own clock, `as_of` lies between the last step and the next one."""
    queue = door.queue(database_url, allowed_sources=SOURCES)
    task_id = queue.receive(envelope(deadline=2.0**40), AUTH).task_id
    claim = queue.claim("w")
    story = queue.explain(task_id)
    queue.finish(claim, 1)
    ended_at = queue.task(task_id).ended_at
    assert type(story.as_of) is float
    assert story.timeline[-1].at <= story.as_of <= ended_at


def test_a_reply_that_was_removed(queue, stored):
    """A task whose reply somebody removed is told without one, with its whole timeline."""
    task_id = queue.receive(envelope(), AUTH).task_id
    queue.finish(queue.claim("w"), 1)
    with stored.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM outbox"))
    story = queue.explain(task_id)
    assert (None, "nothing: the reply was removed") == (story.reply, story.next)
    assert 4 == len(story.timeline)
