"""How often SQLite tries to empty its log into the file: as always, and seldom while somebody is in the way.

A reader that stays open keeps the log from being emptied. SQLite then tries again at every COMMIT, over a log that
only grows, and syncs each time: within a minute a third of the speed was left. So a connection looks at the log itself
after so many of its transactions; where it cannot be emptied, that is tried again when it is twice as long, or at the
next look.
"""

from __future__ import annotations

from typing import Any, Final

from recovery.backend.base import is_database_error

PAGES: Final = 1000
"""How long the log becomes before SQLite tries to empty it: its own default. Whoever chose another is left alone."""
LOOK_EVERY: Final = 256
"""Transactions of one connection that write."""
_WRITES, _PAGES = "recovery.writes", "recovery.log_pages"
_ELSEWHERE = 0
"""Stands for a number of pages that somebody else has chosen."""


def before_write(notes: dict[Any, Any], driver: Any) -> None:
    """Count a transaction that is about to begin, and look at the log when it is time. `notes` are the connection's."""
    writes = notes.get(_WRITES, 0) + 1
    notes[_WRITES] = writes % LOOK_EVERY
    if writes == LOOK_EVERY:
        try:
            _look(notes, driver)
        except Exception as error:
            if not is_database_error(error):
                raise  # What the database has against it, the transaction that follows will hear.


def _look(notes: dict[Any, Any], driver: Any) -> None:
    known = notes.get(_PAGES)
    if known is None:
        found = driver.execute("PRAGMA wal_autocheckpoint").fetchall()[0][0]
        known = notes[_PAGES] = PAGES if found == PAGES else _ELSEWHERE
    if known == _ELSEWHERE:
        return
    _, pages, emptied = driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()[0]
    wanted = PAGES if emptied >= pages else max(PAGES, 2 * pages)
    if wanted != known:
        driver.execute(f"PRAGMA wal_autocheckpoint = {wanted}")
        notes[_PAGES] = wanted
