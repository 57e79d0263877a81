"""Secrets that nobody else has, and the search for them in whatever is logged, raised, printed or stored."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import pickle
import secrets
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import sqlalchemy as sa

LEVELS: Final = {
    **dict.fromkeys(("", "recovery", "sqlalchemy", "sqlalchemy.pool", "psycopg", "asyncio", "alembic"), logging.DEBUG),
    "sqlalchemy.engine": logging.INFO,
    "aiosqlite": logging.INFO,
}
"""Everybody's at DEBUG but for two, which write down rows and parameters there: see test_found_leaks."""


class Canaries:
    """One text for each place where something secret may stand. Made by chance, so that no line of code holds it."""

    def __init__(self) -> None:
        self.password = _one("password")
        self.user = _one("user").replace("-", "_")
        self.option = _one("option")
        self.payload = _one("payload")
        self.key = _one("key")
        self.result = _one("result")
        self.reason = _one("reason")
        self.error = _one("error")

    def in_what(self, texts: Iterable[str]) -> set[str]:
        """The names of those that stand in any of these texts."""
        said = "\n".join(texts)
        return {name for name, value in vars(self).items() if value in said}

    def lines_with(self, texts: Iterable[str]) -> list[str]:
        """The lines that hold one, shortened, to be read in a failure."""
        lines = [line for text in texts for line in text.splitlines()]
        return [line[:300] for line in lines if any(value in line for value in vars(self).values())]


def _one(name: str) -> str:
    return f"{name}-{secrets.token_hex(8)}"


class Watch(logging.Handler):
    """Listens to all loggers, at LEVELS but for what a test wants to be different, and to standard output and error."""

    def __init__(self, **levels: int) -> None:
        super().__init__(logging.NOTSET)
        self._wanted = LEVELS | {name.replace("_", "."): level for name, level in levels.items()}
        self.texts: list[str] = []
        self._before: dict[str, int] = {}
        self._streams = io.StringIO()
        self._at_the_end = contextlib.ExitStack()
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record as it would be written, with its error, and as it is handed on to other programs."""
        self.texts.append(self.format(record))
        self.texts.append(repr(vars(record)))

    def __enter__(self) -> Self:
        for name, level in self._wanted.items():
            logger = logging.getLogger(name)
            self._before[name] = logger.level
            logger.setLevel(level)
        logging.getLogger().addHandler(self)
        self._at_the_end.enter_context(contextlib.redirect_stdout(self._streams))
        self._at_the_end.enter_context(contextlib.redirect_stderr(self._streams))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._at_the_end.close()
        logging.getLogger().removeHandler(self)
        for name, level in self._before.items():
            logging.getLogger(name).setLevel(level)
        self.texts.append(self._streams.getvalue())


def shown(error: BaseException) -> list[str]:
    """All that an error, everything that it came from, and copies of it show of themselves."""
    texts = ["".join(traceback.format_exception(error))]
    for one in around(error):
        texts += [str(one), repr(one), repr(one.args), *getattr(one, "__notes__", [])]
        texts += [str(one.__cause__), repr(one.__context__)]
    for copied in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        texts += [str(copied), repr(copied), repr(copied.args), repr(vars(copied))]
        texts.append("".join(traceback.format_exception(copied)))
    texts.append(pickle.dumps(error).decode("latin-1"))
    return texts


def around(error: BaseException) -> Iterator[BaseException]:
    """An error and all of its causes and contexts."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__]
            left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            left += [found for found in vars(one).values() if isinstance(found, BaseException)]


def logged(error: BaseException) -> None:
    """Log an error as a program does that was surprised by it."""
    logging.getLogger("somebody").error("it went wrong", exc_info=error)


def reprs(things: Iterable[object]) -> list[str]:
    """What things show of themselves where a debugger, an f-string or a log asks."""
    return [text for thing in things for text in (repr(thing), str([thing]), f"{thing!r:.100000}")]


def columns_with(url: str, canaries: Canaries) -> dict[str, set[str]]:
    """In which columns of which tables, of all that there are, each of the canaries stands."""
    engine = sa.create_engine(sa.make_url(url).set(drivername=_driver(url)))
    found: dict[str, set[str]] = {}
    with engine.connect() as connection:
        for table in sa.inspect(connection).get_table_names():
            for row in connection.exec_driver_sql(f'SELECT * FROM "{table}"').mappings():
                for column, value in row.items():
                    for name in canaries.in_what([str(value)]):
                        found.setdefault(name, set()).add(f"{table}.{column}")
    engine.dispose()
    return found


def _driver(url: str) -> str:
    return "sqlite" if url.startswith("sqlite") else "postgresql+psycopg"


def files_with(folder: Path, canaries: Canaries) -> dict[str, set[str]]:
    """In which files below a folder each of the canaries stands, byte by byte."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            for name in canaries.in_what([path.read_bytes().decode("latin-1")]):
                found.setdefault(name, set()).add(path.name)
    return found


def command_lines() -> list[str]:
    """The arguments of every process that can be seen, this one's left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode("latin-1"))
    return [text for text in found if text.split() != sys.orig_argv]
