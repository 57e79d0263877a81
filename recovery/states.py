"""The states of a task and of a reply, and every move that is allowed, as data.

Four readers, no copies: each UPDATE takes its *from* states here, the CHECK constraints are made from it, the property
test walks it, and the diagram in the README is printed from it (`python -m recovery.states`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PENDING: Final = "pending"
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
EXPIRED: Final = "expired"
HOP_LIMIT: Final = "hop_limit"

SENDING: Final = "sending"
SENT: Final = "sent"
DEAD: Final = "dead"

NEW: Final = "new"
"""Not a stored state: where a row comes from when it is inserted."""

Moves = Mapping[str, tuple[str, ...]]

TASK_MOVES: Final[Moves] = MappingProxyType(
    {
        NEW: (PENDING, EXPIRED, HOP_LIMIT),
        PENDING: (RUNNING, CANCELLED, EXPIRED),
        RUNNING: (DONE, FAILED, CANCELLED, EXPIRED, PENDING),
        DONE: (),
        FAILED: (),
        CANCELLED: (),
        EXPIRED: (),
        HOP_LIMIT: (),
    }
)
"""Section 4 of the contract. A state without a move is terminal: it is never left."""

REPLY_MOVES: Final[Moves] = MappingProxyType(
    {
        NEW: (PENDING,),
        PENDING: (SENDING,),
        SENDING: (SENT, PENDING, DEAD),
        SENT: (),
        DEAD: (PENDING, SENT),
    }
)
"""Section 5 of the contract. `dead` is left by a replay (pending) or by a reconciliation (sent), nothing else."""


def stored(moves: Moves) -> tuple[str, ...]:
    """Every state that a row may be in, in the order of the table above."""
    return tuple(state for state in moves if state != NEW)


def terminal(moves: Moves) -> tuple[str, ...]:
    """The states that are never left."""
    return tuple(state for state in stored(moves) if not moves[state])


def sources(moves: Moves, target: str) -> tuple[str, ...]:
    """The stored states from which `target` may be reached."""
    return tuple(state for state in stored(moves) if target in moves[state])


TASK_STATES: Final = stored(TASK_MOVES)
TASK_ENDED: Final = terminal(TASK_MOVES)
TASK_OPEN: Final = tuple(state for state in TASK_STATES if state not in TASK_ENDED)
REPLY_STATES: Final = stored(REPLY_MOVES)

DEADLINE_REACHED: Final = "deadline reached"
HOPS_REACHED: Final = "hop budget reached"
ATTEMPTS_EXHAUSTED: Final = "attempts exhausted"
CANCELLED_BY_SCHEDULER: Final = "cancelled by scheduler"
DELIVERY_LEASE_EXPIRED: Final = "delivery lease expired; outcome unknown"
"""The reasons that the library itself gives. They are part of the reply bytes, so they never change."""


def diagram(moves: Moves) -> str:
    """A Mermaid state diagram of `moves`, for the README."""
    lines = ["stateDiagram-v2"]
    for source, targets in moves.items():
        start = "[*]" if source == NEW else source
        lines += [f"    {start} --> {target}" for target in targets]
        if not targets:
            lines.append(f"    {source} --> [*]")
    return "\n".join(lines)


if __name__ == "__main__":
    print(  # noqa: T201 - this is a small program
        diagram(TASK_MOVES), diagram(REPLY_MOVES), sep="\n\n"
    )
