from __future__ import annotations

import contextlib
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recovery import Envelope, ManualClock, Settlement, migrate
from tests.plugins.backends import backends_wanted
from tests.plugins.pg_server import PostgresServer
from tests.plugins.queues import AUTH, AUTH_B, SOURCES, Door, Stored, envelope

NO_DELIVERY: Any = "d"


class Recorder:
    """Runs a list of calls, and writes down each answer or the class of each error."""

    def __init__(self, queue: Any, receiver: Any, clock: ManualClock) -> None:
        self.queue, self.receiver, self.clock = queue, receiver, clock
        self.answers: list[Any] = []

    def call(self, verb: str, *args: Any, on: str = "queue", **kwargs: Any) -> Any:
        try:
            answer = getattr(getattr(self, on), verb)(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - its class is what is compared
            answer = type(error).__name__
        self.answers.append((verb, plain(answer)))
        return answer


def plain(answer: Any) -> Any:
    """An answer as something that can be compared, with the type of each value."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return {name: plain(value) for name, value in asdict(answer).items()}
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    if isinstance(answer, Exception):
        return type(answer).__name__, str(answer)
    return type(answer).__name__, answer


def receives(run: Recorder) -> None:
    """Everything that comes in, good and bad."""
    messages: list[Envelope] = [envelope(f"m-{n}", max_attempts=1 + n % 3) for n in range(9)]
    run.call("receive_batch", messages, AUTH)
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"payload": {"n": 1.0}},
        {"sender": "agent-b"},
        {"message_id": ""},
        {"deadline": True},
    )
    for change in changes:
        run.call("receive", envelope(**{"message_id": "m-2", "max_attempts": 3, **change}), AUTH)
    run.call("receive", envelope("m-1", sender="agent-b", payload={"\u00e9": ["\U0001f600", None, 1e300]}), AUTH_B)
    run.call("receive", envelope("late", deadline=1000), AUTH)
    run.call("receive", envelope("hops", hops=4), AUTH)
    run.call("receive", envelope("soon", deadline=1003.25), AUTH)
    run.call("receive_all", [envelope("z"), envelope("y"), envelope("")], AUTH)
    run.call("receive_all", [envelope("z"), envelope("A"), envelope("a"), envelope("\u00e9")], AUTH)


def works(run: Recorder) -> None:
    """Claims that end in every way, and stale ones."""
    claims = run.call("claim_batch", "w", 6)
    run.call("finish", claims[0], {"b": [1, 2.5, "\u00e9"], "a": None})
    run.call("finish", claims[0], {"b": [1, 2.5, "\u00e9"], "a": None})
    run.call("finish", claims[0], 2)
    run.call("fail", claims[1], "boom\0\ud800")
    run.call("fail", claims[2], "never", retryable=False)
    run.call("release", claims[3])
    run.call("release", claims[4])
    run.call("cancel", claims[5].task_id)
    run.call("cancel", claims[5].task_id)
    for identity in ("unknown", "\0", "\ud800", 5):
        run.call("cancel", identity)
        run.call("explain", identity)
    held = run.call("claim", "w")
    run.clock.advance(10)
    for verb, more in (("renew", ()), ("finish", (1,)), ("fail", ("no",)), ("release", ())):
        run.call(verb, held, *more)
    again = run.call("claim_batch", "v", 3)
    run.clock.advance(5)
    run.call("renew", again[0])
    run.clock.advance(6)
    run.call("reconcile")
    run.call("counts")


def delivers(run: Recorder) -> None:
    """Replies that are sent, collide, are lost, and die."""
    run.call("dispatch_once", run.receiver)
    waiting = next(reply for reply in run.queue.replies() if reply.state == "pending")
    run.call("accept", waiting.reply_id, "other", on="receiver")
    run.call("dispatch_once", run.receiver)
    for _ in range(3):
        stale = run.call("claim_reply", "d")
        run.clock.advance(10)
        run.call("settle", stale, delivered=True)
    held = run.call("claim_reply", "e")
    run.call("settle", held, delivered=False, error="try later")
    run.call("reconcile")
    run.call("accept", "", "x", on="receiver")
    run.call("effect_count", on="receiver")
    run.call("receive", envelope("held"), AUTH)
    run.call("claim", "holder")
    run.call("replies")
    run.call("counts")
    for reply in run.queue.replies():
        run.call("task", reply.task_id)
        run.call("explain", reply.task_id)


def queues(run: Recorder) -> None:
    """Named queues and priorities, asked alone and together, and what is refused."""
    messages = [envelope(f"q-{n}", queue=("mail", "default", "Mail")[n % 3], priority=n * 7 % 10) for n in range(12)]
    run.call("receive_all", [*messages, messages[0], envelope("q-late", deadline=1.0, queue="mail", priority=9)], AUTH)
    run.call("receive", envelope("q-0", queue="Mail"), AUTH)
    for change in ({"priority": 10}, {"priority": True}, {"queue": ""}, {"queue": "a\0b"}):
        run.call("receive", envelope("q-bad", **change), AUTH)
    for asked in ("mail", (), ("mail", ""), [f"n-{n}" for n in range(33)], None):
        run.call("claim", "w", asked)
    run.call("claim", "w", ("unknown",))
    run.call("claim_batch", "w", 2, ("mail", "Mail"))
    run.call("claim_batch", "w", 3, ["Mail", "mail", "default", "mail"])


def batches(run: Recorder) -> None:
    """Batches in which each item has its own verdict, and one task after another in one transaction."""
    held = run.call("claim_batch", "b", 6, ("mail", "Mail", "default"))
    made_up = [
        replace(held[0], fence=9),
        replace(held[0], fence=-1),
        replace(held[0], task_id=""),
        replace(held[0], owner="x"),
    ]
    items = [
        (held[1], {"\u00e9": 1}),
        *((one, 1) for one in made_up),
        (held[1], {"\u00e9": 1}),
        (held[1], 2),
        (None, 1),
    ]
    run.call("finish_batch", [*items, (held[2], float("nan")), (held[0], None)])
    run.call("finish_batch", [(held[2], 1), 5])
    following = run.call("finish_and_claim", held[2], [1.0], ("mail", "default", "Mail"))
    run.call("finish_and_claim", held[2], [1.0], ("mail", "default", "Mail"))
    run.call("finish_and_claim", held[2], [2.0])
    run.call("finish_and_claim", following, 1, ("unknown",))
    run.clock.advance(10)
    run.call("finish_batch", [(held[3], 1), (held[4], 1)])
    run.call("finish_and_claim", held[5], 1)
    sending = run.call("claim_reply_batch", "d", 5)
    said = [Settlement(sending[0], delivered=True), Settlement(sending[1], delivered=False, error="later\ud800")]
    said += [Settlement(sending[2], delivered=False, permanent=True), Settlement(sending[0], delivered=False)]
    said += [Settlement(replace(sending[3], fence=2**70), delivered=True), Settlement(NO_DELIVERY, delivered=True)]
    run.call("settle_batch", said)
    run.clock.advance(10)
    run.call("settle_batch", [Settlement(sending[4], delivered=True)])
    run.call("claim_reply_batch", "d", 0)
    run.call("reconcile")


def recorded(url: str, door_name: str) -> tuple[list[Any], Any]:
    """The answers to the whole list on one database, and what its tables hold afterwards."""
    with contextlib.ExitStack() as at_the_end:
        door, clock = Door(door_name, at_the_end), ManualClock(1000.0)
        queue = door.queue(url, allowed_sources=SOURCES, backoff=2.0, clock=clock)
        run = Recorder(queue, door.receiver(url, clock=clock), clock)
        receives(run)
        works(run)
        queues(run)
        batches(run)
        delivers(run)
        stored = Stored(url)
        at_the_end.callback(stored.engine.dispose)
        return run.answers, stored.contents()


@pytest.fixture(scope="module")
def each_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The answers and tables for each door on each backend that is wanted, by (backend, door)."""
    found = {}
    for backend in backends_wanted():
        for door in ("sync", "async"):
            if backend == "sqlite":
                folder: Path = tmp_path_factory.mktemp("same")
                url = f"sqlite:///{folder}/{door}.db"
                migrate(url)
                found[backend, door] = recorded(url, door)
                continue
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = server.create_database(server.template_database("migrated", migrate))
            try:
                found[backend, door] = recorded(url, door)
            finally:
                server.drop_database(url)
    return found


def test_same_answers(each_database):
    """The same calls have the same answers, value and type, and the same classes of error, on every one."""
    first, *others = (answers for answers, _ in each_database.values())
    for other in others:
        for expected, found in zip(first, other, strict=True):
            assert expected == found


def test_same_tables(each_database):
    """The same calls leave the same tables behind, cell by cell, on every one."""
    first, *others = (contents for _, contents in each_database.values())
    for other in others:
        for table, rows in first.items():
            assert rows == other[table], table


def test_the_list_goes_everywhere(each_database):
    """The list of calls meets every class of error and every state that it is meant to compare."""
    answers, contents = next(iter(each_database.values()))
    errors = {answer[1] for _, answer in answers if isinstance(answer, tuple) and answer[0] == "str"}
    assert {"PayloadCollision", "Unauthorized", "InvalidEnvelope", "Fenced"} <= errors
    states = {row["state"] for row in contents["tasks"]}
    assert {"pending", "running", "done", "failed", "cancelled", "expired", "hop_limit"} == states
    assert {"pending", "sent", "dead"} <= {row["state"] for row in contents["outbox"]}
