"""What actors call: every verb by a name, through a queue whose answers are written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from recovery import Settlement
from recovery.testing.promises import canonical, sha256
from recovery.testing.recording import REPLY, RecordedQueue, fingerprint
from tests.permutations.beginnings import AUTH, Things, message

Verb: TypeAlias = Callable[[RecordedQueue, Things, str], Any]
RESULT: Final = 1


def _together(
    door: RecordedQueue,
    name: str,
    asked: Iterable[Mapping[str, Any]],
    call: Callable[[], list[Any]],
    facts: Callable[[Any], Mapping[str, Any]],
) -> list[Any]:
    """One transaction over many items, each written down as if it had been asked alone."""
    pending = [door.history.invoke(name, **one) for one in asked]
    try:
        answers = call()
    except Exception as error:
        for one in pending:
            one.fail(error)
        raise
    for one, answer in zip(pending, answers, strict=True):
        refused = getattr(answer, "error", None)
        if refused is None:
            one.ok(**facts(answer))
        else:
            one.fail(refused)
    return answers


def _finish_batch(order: int) -> Verb:
    def call(door: RecordedQueue, things: Things, _: str) -> Any:
        claims = things.claims[::order]
        mark = sha256(canonical(RESULT))
        asked = [{"task_id": one.task_id, "owner": one.owner, "fence": one.fence, "result": mark} for one in claims]
        pairs = [(one, RESULT) for one in claims]
        return _together(door, "finish", asked, lambda: door.queue.finish_batch(pairs), lambda _: {})

    return call


def _settle_batch(order: int) -> Verb:
    def call(door: RecordedQueue, things: Things, _: str) -> Any:
        held = things.deliveries[::order]
        asked = [
            {
                "task_id": one.reply_id.removeprefix(REPLY),
                "owner": one.owner,
                "fence": one.fence,
                "delivered": True,
            }
            for one in held
        ]
        items = [Settlement(one, delivered=True) for one in held]
        return _together(
            door, "settle", asked, lambda: door.queue.settle_batch(items), lambda one: {"state": one.state}
        )

    return call


def _receive_all(order: int, **changes: Any) -> Verb:
    def call(door: RecordedQueue, *_: Any) -> Any:
        messages = [message(number, **changes) for number in (1, 2, 3)][::order]
        asked = [
            {"principal": one.sender, "message_id": one.message_id, "fingerprint": fingerprint(one)} for one in messages
        ]

        def facts(ack: Any) -> dict[str, Any]:
            return {"task_id": ack.task_id, "duplicate": ack.duplicate}

        return _together(door, "receive", asked, lambda: door.queue.receive_all(messages, AUTH), facts)

    return call


VERBS: Final[Mapping[str, Verb]] = {
    "receive": lambda door, *_: door.receive(message(), AUTH),
    "receive otherwise": lambda door, *_: door.receive(message(priority=1), AUTH),
    "claim": lambda door, _, name: door.claim(name),
    "claim two": lambda door, _, name: door.claim(name, 2),
    "renew": lambda door, things, _: door.renew(things.claims[0]),
    "finish": lambda door, things, _: door.finish(things.claims[0], RESULT),
    "finish otherwise": lambda door, things, _: door.finish(things.claims[0], 2),
    "finish and claim": lambda door, things, _: door.finish_and_claim(things.claims[0], RESULT),
    "fail": lambda door, things, _: door.fail(things.claims[0], "no"),
    "fail for good": lambda door, things, _: door.fail(things.claims[0], "never", retryable=False),
    "release": lambda door, things, _: door.release(things.claims[0]),
    "cancel": lambda door, things, _: door.cancel(things.tasks[0]),
    "cancel the other": lambda door, things, _: door.cancel(things.tasks[1]),
    "reconcile": lambda door, *_: door.reconcile(),
    "claim reply": lambda door, _, name: door.claim_reply(name),
    "claim two replies": lambda door, _, name: door.claim_reply(name, 2),
    "renew reply": lambda door, things, _: door.renew_reply(things.deliveries[0]),
    "settle delivered": lambda door, things, _: door.settle(things.deliveries[0], delivered=True),
    "settle not delivered": lambda door, things, _: door.settle(things.deliveries[0], delivered=False, error="lost"),
    "settle refused": lambda door, things, _: door.settle(
        things.deliveries[0], delivered=False, error="no", permanent=True
    ),
    "finish all": _finish_batch(1),
    "finish all, backwards": _finish_batch(-1),
    "settle all": _settle_batch(1),
    "settle all, backwards": _settle_batch(-1),
    "receive all": _receive_all(1),
    "receive all, backwards": _receive_all(-1),
    "receive all otherwise, backwards": _receive_all(-1, priority=1),
}
