"""How often SQLite tries to empty its log into the file: as always, and seldom while somebody is in the way.

A reader that stays open keeps the log from being emptied. SQLite then tries again at every COMMIT, over a log that
only grows, and syncs each time: within a minute a third of the speed was left. So a connection looks how long the log's
file is after so many of its transactions. Where it is longer than it gets by itself, the connection tries to empty it;
what cannot be emptied is tried again when it is twice as long, or at the next look.

To try costs as much as ten transactions, to look nothing. So that the file tells how long the log is, it is cut to that
length where the log begins anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from recovery.backend.base import is_database_error

PAGES: Final = 1000
"""How long the log becomes before SQLite tries to empty it: its own default. Whoever chose another is left alone."""
LONG_PAGES: Final = 4 * PAGES
"""A log that is longer has somebody in its way, or had a very large transaction."""
LOOK_EVERY: Final = 256
"""Transactions of one connection that write."""
_WRITES, _LOG = "recovery.writes", "recovery.log"
_FRAME_HEAD_BYTES: Final = 24
_UNLIMITED: Final = -1


class _Log:
    """A connection's log: where it is, from how many bytes on it is long, and how long it may get before it is emptied.

    `pages` is None where somebody else has chosen that number.
    """

    __slots__ = ("_long_bytes", "_path", "pages")

    def __init__(self, driver: Any) -> None:
        self.pages = PAGES if _asked(driver, "wal_autocheckpoint") == PAGES else None
        self._path = Path(f"{driver.execute('PRAGMA database_list').fetchall()[0][2]}-wal")
        self._long_bytes = LONG_PAGES * (_asked(driver, "page_size") + _FRAME_HEAD_BYTES)
        if self.pages and _asked(driver, "journal_size_limit") == _UNLIMITED:
            driver.execute(f"PRAGMA journal_size_limit = {self._long_bytes}").fetchall()

    def is_long(self) -> bool:
        """Whether it is worth a try to empty it."""
        try:
            return self._path.stat().st_size > self._long_bytes
        except OSError:
            return True  # Unknown: who tries hears more.


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
    log: _Log | None = notes.get(_LOG)
    if log is None:
        log = notes[_LOG] = _Log(driver)
    if log.pages is None or (log.pages == PAGES and not log.is_long()):
        return
    _, pages, emptied = driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()[0]
    wanted = PAGES if emptied >= pages else max(PAGES, 2 * pages)
    if wanted != log.pages:
        driver.execute(f"PRAGMA wal_autocheckpoint = {wanted}")
        log.pages = wanted


def _asked(driver: Any, name: str) -> int:
    found: int = driver.execute(f"PRAGMA {name}").fetchall()[0][0]
    return found
