"""One tree of errors for both backends. The docstring is the default message; the facts are fields; the cause is kept.

Nothing here repeats what a database or a caller said: a driver's text can carry a row's data, so it stays in
`__cause__` and never becomes part of our own sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recovery.messages import Ack


class RecoveryError(Exception):
    """Something that recovery was asked to do could not be done."""

    retryable = False
    """True where the same call may well succeed a little later."""

    def __init__(self, sentence: str | None = None) -> None:
        super().__init__(sentence or self.default_sentence())

    @classmethod
    def default_sentence(cls) -> str:
        """What an error of this class says where nobody said more."""
        return (cls.__doc__ or "").split("\n\n")[0].replace("\n    ", " ").strip()

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would call the class with the finished sentence, and most classes are made from facts.
        return _again, (type(self), self.args), vars(self)


def _again(kind: type[RecoveryError], args: tuple[Any, ...]) -> RecoveryError:
    return kind.__new__(kind, *args)


class InvalidEnvelope(RecoveryError, ValueError):
    """What was handed in breaks a rule of the contract; nothing was written.

    `field` is the name of the thing that was refused, `limit` the bound that it broke (None where there is none).
    """

    def __init__(self, sentence: str | None = None, *, field: str = "", limit: object = None) -> None:
        super().__init__(sentence)
        self.field = field
        self.limit = limit


class Unauthorized(RecoveryError, ValueError):
    """The source is not authenticated, not allowed, or not the sender of the envelope; nothing was written."""


class PayloadCollision(RecoveryError, ValueError):
    """The same identity is already stored with different content; what is stored stays as it was."""

    def __init__(self, identity: str) -> None:
        super().__init__(f"{identity} is already stored with different content; what is stored stays as it was.")
        self.identity = identity


class Overloaded(RecoveryError):
    """The principal has as many open tasks as its quota allows; nothing was written."""

    retryable = True


class Fenced(RecoveryError):
    """The claim no longer owns the row; nothing was changed.

    `identity` is the task id or the reply id, `fence` the number of the claim that was refused, `why` the first thing
    that did not hold.
    """

    def __init__(self, identity: str, fence: object, why: str) -> None:
        super().__init__(f"the claim on {identity} with fence {fence} no longer holds: {why}; nothing was changed.")
        self.identity = identity
        self.fence = fence
        self.why = why


class BatchFailed(RecoveryError):
    """A batch stopped at one item.

    `acks` are the acknowledgements of everything before it, each committed; `index` is the position (from 0) of the
    item that failed; `cause` is why. Sending the whole batch again is harmless.
    """

    def __init__(self, acks: Sequence[Ack], index: int, cause: Exception) -> None:
        super().__init__(f"item {index} failed ({type(cause).__name__}); the {len(acks)} before it are stored.")
        self.acks = tuple(acks)
        self.index = index
        self.cause = cause


class Busy(RecoveryError):
    """The database was busy for longer than the bound; nothing was stored, and the call may be repeated."""

    retryable = True


class Unavailable(RecoveryError):
    """The database cannot be reached, went away before COMMIT was sent, or has no room; nothing was stored."""

    retryable = True


class CommitUnknown(RecoveryError):
    """The connection was lost during COMMIT: the work is stored or it is not. Look before repeating it."""


class ReadOnly(RecoveryError):
    """The database can only be read here: a standby, a read-only role, or a write-protected file."""


class SchemaMismatch(RecoveryError):
    """The tables are missing, too old or too new for this release; run `recovery migrate`."""


class Misconfigured(RecoveryError, ValueError):
    """A URL, driver, engine, connection or setting that recovery cannot work with."""


class StatementFailed(RecoveryError):
    """The database refused a statement for a reason of its own; the transaction was rolled back.

    The driver's exception is the cause. Seen where a trigger, a constraint or a damaged row gets in the way.
    """
