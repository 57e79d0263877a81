"""What the contract says of every step: its answer, what it leaves behind, and what it may never touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.worlds.contents import Book, Contents, Row, book
from tests.worlds.invariants import HELD, by_row
from tests.worlds.machine import DIED, DOUBT, State, Taken
from tests.worlds.model import Model
from tests.worlds.steps import REPEATED, VERBS, World

TASK_FIXED: Final = ("arrival", "queue", "priority", "payload", "deadline", "hops", "max_attempts", "received_at")
REPLY_FIXED: Final = ("task_id", "arrival", "status", "payload", "max_attempts", "created_at")
ENDED_FIXED: Final = ("done", "failed", "cancelled", "expired", "hop_limit", "sent")


def broken(world: World, before: State, taken: Taken) -> list[str]:
    """A sentence for each thing that this step should not have done, or should have."""
    model = Model(book(before.contents), before.now, world.times)
    answer = VERBS[taken.step.verb].model(model, taken.step)
    found = list(_not_as_promised(before, taken, answer, model.book))
    found += _touched(before.contents, taken.after.contents)
    return found + list(_mistold(before.contents, taken.after.contents, before.now))


def _not_as_promised(before: State, taken: Taken, answer: Any, promised: Book) -> Iterator[str]:
    """The answer and the rows by the model, where the fate leaves them to be known."""
    old, now = book(before.contents), book(taken.after.contents)
    fate, verb = taken.step.fate, taken.step.verb
    if fate is None or (fate.kind == "doubt" and verb in REPEATED):
        yield from _differences(promised, now)
        known = fate is None or not (verb == "reconcile" or fate.place == "after")
        if known and taken.answer != answer:
            yield f"it answered {taken.answer!r} and not {answer!r}"
        if not known and taken.answer in {DIED, DOUBT}:
            yield "it was not asked again"
        return
    if taken.answer != (DIED if fate.kind == "dies" else DOUBT):
        yield f"it answered {taken.answer!r} though its commit went wrong"
    if verb == "reconcile":
        yield from _in_part(old, promised, now, fate.commit - (fate.place == "before"))
    else:
        yield from _differences(promised if fate.place == "after" else old, now)


def _differences(promised: Book, now: Book) -> Iterator[str]:
    pairs: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
        ("task", promised.tasks, now.tasks),
        ("reply", promised.replies, now.replies),
        ("receipt", promised.receipts, now.receipts),
    )
    for name, wanted, stored in pairs:
        for identity in sorted(wanted.keys() | stored.keys()):
            if wanted.get(identity) != stored.get(identity):
                known = identity.removeprefix("reply:")[:6]
                yield f"{name} {known}: {_difference(wanted.get(identity), stored.get(identity))}"
    if promised.applied != now.applied:
        yield f"{len(now.applied)} effects were applied, and {len(promised.applied)} were promised"


def _difference(wanted: Any, stored: Any) -> str:
    """In which columns a row is another than was promised; never what is in its payload."""
    if wanted is None or stored is None or isinstance(stored, str):
        return f"it {'is not' if stored is None else 'is'} stored, against what was promised"
    names = [name for name in stored.__slots__ if getattr(stored, name) != getattr(wanted, name)]
    told = [
        f"{name} {getattr(stored, name)!r} (promised {getattr(wanted, name)!r})" for name in names if name != "payload"
    ]
    return ", ".join(told) or "its payload is another"


def _in_part(old: Book, promised: Book, now: Book, commits: int) -> Iterator[str]:
    """Row by row, a transaction each: so many rows are settled, and every other is as it was."""
    moved = 0
    for before, after, stored in ((old.tasks, promised.tasks, now.tasks), (old.replies, promised.replies, now.replies)):
        for identity in before:
            row = stored.get(identity)
            moved += row != before[identity]
            if row not in (before[identity], after[identity]):
                yield f"{identity} is neither settled nor as it was"
    if moved != commits:
        yield f"{moved} rows are settled after {commits} commits"


def _touched(before: Contents, after: Contents) -> Iterator[str]:
    """Nothing that is stored is ever lost, and what is fixed stays; what has ended is never left."""
    old, new = before.queue, after.queue
    yield from _lost("message", old.inbox, new.inbox, "task_id")
    yield from _lost("receipt", before.receiver.receipts, after.receiver.receipts, "reply_id")
    yield from _lost("effect", before.receiver.effects, after.receiver.effects, "reply_id")
    yield from _lost("move", old.journal, new.journal, "seq")
    yield from _lost("floor", old.fence_floor, new.fence_floor, "id")
    yield from _moved("task", old.tasks, new.tasks, "task_id", TASK_FIXED)
    yield from _moved("reply", old.outbox, new.outbox, "reply_id", REPLY_FIXED)


def _lost(name: str, before: tuple[Row, ...], after: tuple[Row, ...], key: str) -> Iterator[str]:
    stored = {getattr(row, key): row for row in after}
    if any(stored.get(getattr(row, key)) != row for row in before):
        yield f"a {name} was changed or lost"


def _moved(
    name: str, before: tuple[Row, ...], after: tuple[Row, ...], key: str, fixed: tuple[str, ...]
) -> Iterator[str]:
    stored = {getattr(row, key): row for row in after}
    for old in before:
        new = stored.get(getattr(old, key))
        if new is None:
            yield f"a {name} vanished"
        elif old.state in ENDED_FIXED and new != old:
            yield f"a {name} that was {old.state} was changed"
        elif any(getattr(old, column) != getattr(new, column) for column in fixed):
            yield f"a {name} has another {', '.join(c for c in fixed if getattr(old, c) != getattr(new, c))}"
        elif new.fence < old.fence:
            yield f"the fence of a {name} fell"


def _mistold(before: Contents, after: Contents, now: float) -> Iterator[str]:
    """What is new in the journal leads from the rows before to the rows after, and says when."""
    told = after.queue.journal[len(before.queue.journal) :]
    if any(move.at != now for move in told):
        yield "a move was noted at another time than it was made"
    moves = by_row(told)
    old, new = _states(before), _states(after)
    for name in sorted(old.keys() | new.keys() | moves.keys()):
        chain = [old.get(name, ("new", 0)), *((m.to_state, m.fence) for m in moves.get(name, []))]
        torn = [state for state, _ in chain[:-1]] != [m.from_state for m in moves.get(name, [])]
        if torn or chain[-1][0] != new.get(name, ("gone", 0))[0]:
            yield f"the journal does not tell how {name[0]} {name[1][:6]} became {new.get(name)}"
        if HELD[name[0]] in {state for state, _ in chain[1:]} and max(f for _, f in chain) != new[name][1]:
            yield f"the journal tells of another fence than that of {name[0]} {name[1][:6]}"


def _states(contents: Contents) -> dict[tuple[str, str], tuple[str, int]]:
    tasks = {("task", row.task_id): (row.state, row.fence) for row in contents.queue.tasks}
    return tasks | {("reply", row.task_id): (row.state, row.fence) for row in contents.queue.outbox}
