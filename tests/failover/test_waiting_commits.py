"""A COMMIT that waits for its standby, and what is told to whoever waits when something ends the wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from recovery import CommitUnknown, Queue, Receiver, Unavailable, migrate
from recovery.backend.base import Begin, Bounds
from recovery.backend.postgresql import begin_text
from tests.failover.servers import Pair, until
from tests.plugins.queues import AUTH, SOURCES, envelope

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
WAITED_LONG = f"{WAITING} AND clock_timestamp() - state_change > interval '1 second'"
CANCEL, TERMINATE = "SELECT pg_cancel_backend(%s)", "SELECT pg_terminate_backend(%s)"
FAR = 9_999_999_999.0


class Call(threading.Thread):
    """A call that may wait for long; `answer` is what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._call()
        except (CommitUnknown, Unavailable, psycopg.Error) as error:
            self.answer = error

    @property
    def confirmed(self) -> bool:
        """Whether the caller was told that it is done. Waits for the end of the call."""
        self.join(timeout=60)
        assert not self.is_alive()
        return not isinstance(self.answer, Exception)


@pytest.fixture
def held_back(pair):
    """A migrated pair, with one claimed task, whose standby was then cut off; a queue, and the claim."""
    migrate(pair.url)
    settings = {"allowed_sources": SOURCES, "lease_seconds": 3600.0}
    with Queue.open(pair.url, **settings) as queue, Receiver.open(pair.url) as receiver:
        queue.receive(envelope(deadline=FAR), AUTH)
        claim = queue.claim("w")
        pair.hold_back()
        yield pair, queue, receiver, claim


def receive(queue: Queue, _receiver: Receiver, _claim: Any) -> object:
    """A message is acknowledged."""
    return queue.receive(envelope("waiting", deadline=FAR), AUTH)


def finish(queue: Queue, _receiver: Receiver, claim: Any) -> object:
    """A task is done."""
    return queue.finish(claim, "result")


def accept(_queue: Queue, receiver: Receiver, _claim: Any) -> object:
    """A reply is confirmed."""
    return receiver.accept("reply:waiting", "{}")


STORED = {
    receive: "SELECT 1 FROM inbox WHERE message_id = 'waiting'",
    finish: "SELECT 1 FROM tasks WHERE state = 'done'",
    accept: "SELECT 1 FROM receipts",
}


def cut(pair: Pair, call: Call, how: Any) -> None:
    """End the wait of the one that waits; return when its call was answered, or waits once more."""
    until(lambda: pair.primary.ask(WAITING))
    ((pid,),) = pair.primary.ask(WAITING)
    pair.primary.ask(how, pid)
    until(lambda: pair.primary.ask(WAITING) != [(pid,)])
    until(lambda: not call.is_alive() or pair.primary.ask(WAITING))


def stored_after_failover(pair: Pair, verb: Any) -> bool:
    """Whether the standby, which takes the primary's place now, has it."""
    pair.primary.kill()
    pair.standby.promote()
    return bool(pair.standby.ask(STORED[verb]))


@pytest.mark.parametrize("verb", [receive, finish, accept])
def test_what_waits_is_answered_when_the_standby_is_back(held_back, verb):
    """Nothing is told before; and what was told then is there after a failover."""
    pair, *facts = held_back
    call = Call(lambda: verb(*facts))
    until(lambda: pair.primary.ask(WAITED_LONG))
    assert call.is_alive()
    pair.let_go()
    assert call.confirmed, call.answer
    assert stored_after_failover(pair, verb)


@pytest.mark.parametrize("verb", [receive, finish, accept])
def test_a_doubt_ends_with_the_same_call_again(held_back, verb):
    """Its primary is killed: nobody knows. The standby does not have it; there the call is made again, and is done."""
    pair, *facts = held_back
    call = Call(lambda: verb(*facts))
    until(lambda: pair.primary.ask(WAITING))
    pair.primary.kill()
    assert not call.confirmed
    assert isinstance(call.answer, CommitUnknown)
    pair.standby.promote()
    assert not pair.standby.ask(STORED[verb])
    pair.rejoin()
    verb(*facts)
    assert pair.standby.ask(STORED[verb])


def test_no_bound_of_a_transaction_ends_the_wait(held_back):
    """Neither of the library's bounds is looked at any more once COMMIT waits for a standby."""
    pair, *_ = held_back
    with psycopg.connect(pair.url, autocommit=True) as line:
        line.execute(begin_text(Begin(write=True, bounds=Bounds(0.1, 0.1, 0.1))))
        line.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        call = Call(lambda: line.execute("COMMIT"))
        until(lambda: pair.primary.ask(WAITED_LONG))
        assert call.is_alive()
        pair.let_go()
        assert call.confirmed, call.answer


def test_only_what_writes_waits(held_back):
    """PostgreSQL answers the COMMIT of a transaction that only read at once, whatever the standby has not got."""
    pair, *_ = held_back
    with psycopg.connect(pair.url) as line:
        line.execute("SELECT 1 FROM inbox")
        line.commit()
        line.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        call = Call(line.commit)
        until(lambda: pair.primary.ask(WAITED_LONG))
        pair.let_go()
        assert call.confirmed, call.answer


@pytest.mark.parametrize("verb", [receive, finish, accept])
def test_a_cancelled_wait_is_no_confirmation(held_back, verb):
    """PostgreSQL confirms the COMMIT, with a warning that the standby may not have it."""
    pair, *facts = held_back
    call = Call(lambda: verb(*facts))
    cut(pair, call, CANCEL)
    confirmed = not call.is_alive() and call.confirmed
    assert confirmed <= stored_after_failover(pair, verb)


@pytest.mark.parametrize("verb", [receive, finish, accept])
def test_a_repeat_after_a_lost_answer_is_no_confirmation(held_back, verb):
    """The first COMMIT is here and not there; the repeat finds it, and only reads."""
    pair, *facts = held_back
    call = Call(lambda: verb(*facts))
    cut(pair, call, TERMINATE)
    confirmed = not call.is_alive() and call.confirmed
    assert confirmed <= stored_after_failover(pair, verb)


def seen(_queue: Queue, receiver: Receiver, _claim: Any) -> bool:
    """Whoever is about to send a reply again asks first whether it is there."""
    return bool(receiver.seen("reply:waiting"))


@pytest.mark.parametrize(("verb", "repeat"), [(receive, receive), (finish, finish), (accept, accept), (accept, seen)])
def test_a_retry_after_a_restart_is_no_confirmation(held_back, verb, repeat):
    """The primary itself comes back, without the standby, and shows what was never replicated."""
    pair, *facts = held_back
    first = Call(lambda: verb(*facts))
    until(lambda: pair.primary.ask(WAITING))
    pair.primary.kill()
    assert not first.confirmed
    pair.primary.start()
    again = Call(lambda: repeat(*facts))
    until(lambda: not again.is_alive() or pair.primary.ask(WAITING))
    confirmed = not again.is_alive() and again.confirmed and again.answer is not False
    assert confirmed <= stored_after_failover(pair, verb)
