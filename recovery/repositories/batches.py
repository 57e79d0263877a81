"""What batches of claims share: how they are read, how they are split, and a verdict for each item in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from recovery.errors import InvalidEnvelope, RecoveryError
from recovery.messages import Verdict
from recovery.repositories import leases
from recovery.repositories.base import Repository

BATCH_MAX: Final = 10_000

Item = TypeVar("Item")
Given = TypeVar("Given")
Numbered: TypeAlias = tuple[int, Item]
Settle: TypeAlias = Callable[[Sequence[Numbered[Item]]], Mapping[int, Verdict]]
"""Stores some items of a batch, each known by its place in it, and says what became of each."""


def checked(items: Iterable[Given], check: Callable[[Given], Item]) -> list[Item | RecoveryError]:
    """What `check` makes of each item, or the error that it raised. Raises InvalidEnvelope for more than BATCH_MAX."""
    found: list[Item | RecoveryError] = []
    for item in items:
        if len(found) == BATCH_MAX:
            raise InvalidEnvelope(f"a batch has at most {BATCH_MAX} items.", field="items", limit=BATCH_MAX)
        try:
            found.append(check(item))
        except RecoveryError as error:
            found.append(error)
    return found


def verdicts(
    room: Repository,
    items: Sequence[Item | RecoveryError],
    claim_of: Callable[[Item], Any],
    composed: Settle[Item],
    in_steps: Settle[Item],
) -> list[Verdict]:
    """A verdict for each item, in order. What was refused before it got here keeps its error.

    A claim that was made up is never sent: `in_steps` compares it here.
    """
    found: dict[int, Verdict] = {}
    good: list[Numbered[Item]] = []
    for index, item in enumerate(items):
        if isinstance(item, RecoveryError):
            found[index] = Verdict("", None, item)
        else:
            good.append((index, item))
    for several in _rounds(good, claim_of):
        sent: list[Numbered[Item]] = []
        compared: list[Numbered[Item]] = []
        for one in several:
            is_sent = room.backend.composes and leases.is_sendable(claim_of(one[1]))
            (sent if is_sent else compared).append(one)
        found |= composed(sent) if sent else {}
        found |= in_steps(compared) if compared else {}
    return [found[index] for index in range(len(items))]


def _rounds(items: list[Numbered[Item]], claim_of: Callable[[Item], Any]) -> Iterator[list[Numbered[Item]]]:
    """Split items so that no row stands twice in one round: the second time must see what the first one did."""
    if len(items) == 1:
        yield items
        return
    while items:
        first: dict[str | int, Numbered[Item]] = {}
        later = [one for one in items if first.setdefault(_identity(one, claim_of), one) is not one]
        yield list(first.values())
        items = later


def _identity(one: Numbered[Item], claim_of: Callable[[Item], Any]) -> str | int:
    index, item = one
    # An id that was made up may be anything, also what cannot be a key of a dict; no row has it.
    identity = leases.identity(claim_of(item))
    return identity if type(identity) is str else index
