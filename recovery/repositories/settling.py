"""When settling what is due fails, the work beside it must still be had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recovery.backend import Backend, is_database_error, original, translate
from recovery.errors import RecoveryError, StatementFailed


class SettlingFailed(RecoveryError):
    """One row could not be settled. The transaction is to be rolled back, and the verb to be run without settling."""


@contextmanager
def settling(backend: Backend) -> Iterator[None]:
    """Turn an error of the settling itself into SettlingFailed.

    A busy or lost database is not such an error: the verb would meet it too, so it passes as it is.
    """
    try:
        yield
    except Exception as error:
        if is_database_error(error):
            again = backend.is_retryable(original(error))
            if again or type(translate(backend, error, "work")) is not StatementFailed:
                raise
        raise SettlingFailed from error
