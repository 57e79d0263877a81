"""Core as the compiler, the driver's own cursor as the runner: what every verb's statements are run by.

Building a statement and executing it through Core costs more than the database's own work on it. So each statement is
built and compiled once for a dialect, and its text then goes to the driver's cursor, in SQLAlchemy's transaction.
Types that need a processor on the way in or out are not used here: text, whole numbers, doubles, and arrays of these.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql import Executable

from recovery.backend import prepared

Build: TypeAlias = Callable[..., Executable]
"""A function of hashable arguments that returns a Core statement. Its bind names begin with `p_`."""
Named: TypeAlias = tuple[Build, tuple[Any, ...]]
"""What names a statement: how it is built, and from which arguments."""
Values: TypeAlias = Mapping[str, Any]


class Statement:
    """The text of one statement for one dialect, and how its rows are named."""

    __slots__ = ("_arrays", "_constants", "_order", "_plain_order", "row", "text")

    def __init__(self, element: Any, dialect: Dialect) -> None:
        compiled, order = _compiled(element, dialect)
        self.text = str(compiled)
        self._constants = {name: value for name, value in compiled.params.items() if not name.startswith("p_")}
        self._arrays = [name for name, bind in compiled.binds.items() if isinstance(bind.type, sa.ARRAY)]
        self._order = _picker(order)
        self._plain_order = _picker([name.removeprefix("p_") for name in order])
        names = element.exported_columns.keys() if hasattr(element, "exported_columns") else ()
        self.row: Any = namedtuple("Row", names) if names else None  # noqa: PYI024 - made from the statement itself

    def given(self, values: Values) -> Any:
        """All values of the statement, with those that it brings itself, in the shape that the driver wants."""
        if self._order is not None:
            return self._order(values)
        given = {**self._constants, **values}
        for name in self._arrays:
            given[name] = array_text(given[name])
        return given

    def given_rows(self, found: Sequence[Values]) -> list[Any]:
        """The same for many rows, whose values have the names of columns."""
        if self._plain_order is not None:
            return list(map(self._plain_order, found))
        return [self.given({f"p_{name}": value for name, value in row.items()}) for row in found]


def _compiled(element: Any, dialect: Dialect) -> tuple[Any, Sequence[str]]:
    """The compiled statement, and the order of its values where the driver wants them by position."""
    compiled = element.compile(dialect=dialect)
    order = compiled.positiontup
    if order is None:
        return compiled, ()
    if len(set(order)) == len(order) and all(name.startswith("p_") for name in order):
        return compiled, order
    # A value that stands in ten places is handed over once, by its name.
    kind: Any = type(dialect)
    return element.compile(dialect=kind(paramstyle="named")), ()


def _picker(names: Sequence[str]) -> Callable[[Values], tuple[Any, ...]] | None:
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda values: (values[names[0]],)) if names else None


def array_text(items: Iterable[Any]) -> str:
    """An array of texts, numbers and None as PostgreSQL reads it. The driver takes ten times as long to write one."""
    return "{" + ",".join([_quoted(item) if isinstance(item, str) else _bare(item) for item in items]) + "}"


def _quoted(item: str) -> str:
    escaped = item.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _bare(item: object) -> str:
    return "NULL" if item is None else repr(item)


_statements: dict[tuple[Hashable, ...], Statement] = {}


def statement(connection: sa.Connection, build: Build, *arguments: Any) -> Statement:
    """What `build(*arguments)` says in this connection's dialect; built once."""
    dialect = connection.dialect
    key = (dialect.name, dialect.paramstyle, build, arguments)
    found = _statements.get(key)
    if found is None:
        found = _statements[key] = Statement(build(*arguments), dialect)
    return found


_ready: set[tuple[Hashable, ...]] = set()


def ready(connection: sa.Connection, what: Hashable, statements: Callable[[], Iterable[Named]]) -> None:
    """Build what `what` is going to send, once in a process, and before its transaction begins.

    The first time takes tens of milliseconds, and with one writer at a time all others would wait for it.
    """
    dialect = connection.dialect
    key = (dialect.name, dialect.paramstyle, what)
    if key not in _ready:
        for build, arguments in statements():
            statement(connection, build, *arguments)
        _ready.add(key)


def rows(connection: sa.Connection, build: Build, arguments: tuple[Any, ...], values: Values) -> list[Any]:
    """Run a statement that returns rows, and return all of them as named tuples."""
    known = statement(connection, build, *arguments)
    cursor = run(connection, known.text, known.given(values))
    return [known.row._make(row) for row in cursor.fetchall()]


def change(connection: sa.Connection, build: Build, arguments: tuple[Any, ...], values: Values) -> int:
    """Run a statement that returns none, and return how many rows it touched."""
    known = statement(connection, build, *arguments)
    touched: int = run(connection, known.text, known.given(values)).rowcount
    return touched


def change_rows(
    connection: sa.Connection, build: Build, arguments: tuple[Any, ...], given: Sequence[Values], arrays: Sequence[str]
) -> int:
    """Run a statement for many rows, each with values by the names of columns; return how many rows it touched.

    Where the backend composes it is one statement, which takes the columns of `arrays` as arrays, and what is the same
    in all rows as it is; else it is run once for each row.
    """
    known = statement(connection, build, *arguments)
    touched: int
    if connection.dialect.paramstyle == "pyformat":
        first = given[0]
        values = {f"p_{name}": [row[name] for row in given] if name in arrays else first[name] for name in first}
        touched = run(connection, known.text, known.given(values)).rowcount
    elif len(given) == 1:
        touched = run(connection, known.text, known.given_rows(given)[0]).rowcount
    else:
        touched = run_many(connection, known.text, known.given_rows(given)).rowcount
    return touched


def change_each(
    connection: sa.Connection, build: Build, arguments: tuple[Any, ...], given: Sequence[Values]
) -> list[int]:
    """Run a statement for each row, with values by the names of columns, and return how many rows each touched."""
    known = statement(connection, build, *arguments)
    return [run(connection, known.text, one).rowcount for one in known.given_rows(given)]


def rows_each(
    connection: sa.Connection, build: Build, arguments: tuple[Any, ...], given: Sequence[Values]
) -> list[Any]:
    """All rows that a statement returns for each of some values, which have the names of columns."""
    known = statement(connection, build, *arguments)
    found = (run(connection, known.text, one).fetchall() for one in known.given_rows(given))
    return [known.row._make(row) for some in found for row in some]


def first_each(
    connection: sa.Connection, build: Build, arguments: tuple[Any, ...], given: Sequence[Values]
) -> list[Any]:
    """For each of some values, with the names of columns, the first row that a statement returns, or None."""
    known = statement(connection, build, *arguments)
    found: list[Any] = []
    for one in known.given_rows(given):
        rows = run(connection, known.text, one).fetchall()
        found.append(known.row._make(rows[0]) if rows else None)
    return found


def run(connection: sa.Connection, text: str, given: Any) -> Any:
    """Send one statement in the connection's transaction, beginning it where it has not begun; return its cursor.

    The cursor is the transaction's: fetch what it has before the next statement.
    """
    line = _line(connection)
    if line.prepares is None:
        return _sent(connection, line, text, given)
    line.prepares.prepare_threshold = 0  # The driver keeps what it is given, for as long as it is told to.
    try:
        return _sent(connection, line, text, given)
    finally:
        line.prepares.prepare_threshold = None


def _sent(connection: sa.Connection, line: _Line, text: str, given: Any) -> Any:
    if line.is_watched:
        return _watched(connection, line.cursor, text, given, many=False)
    line.cursor.execute(text, given)
    return line.cursor


def run_many(connection: sa.Connection, text: str, given: Sequence[Any]) -> Any:
    """The same for many sets of values."""
    line = _line(connection)
    if line.is_watched:
        return _watched(connection, line.cursor, text, given, many=True)
    line.cursor.executemany(text, given)
    return line.cursor


_LINE = "recovery.line"


class _Line:
    """What all statements of one transaction share: the driver's cursor, and whether somebody listens.

    `prepares` is the driver's own connection where statements are prepared, else None.
    """

    __slots__ = ("cursor", "is_watched", "prepares", "transaction")

    def __init__(self, connection: sa.Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        self.transaction = connection.get_transaction()
        self.cursor: Any = driver.cursor()
        self.prepares: Any = connection.connection.driver_connection if prepared.is_used(connection) else None
        events = connection.dispatch
        self.is_watched = bool(events.before_cursor_execute or events.after_cursor_execute)


def _line(connection: sa.Connection) -> _Line:
    notes = vars(connection)
    line: _Line | None = notes.get(_LINE)
    transaction = connection.get_transaction()
    if line is None or transaction is None or line.transaction is not transaction:
        begun(connection)
        line = notes[_LINE] = _Line(connection)
    return line


def leave_line(connection: sa.Connection) -> None:
    """Let go of the transaction's cursor: with a statement that failed in it, it would go on holding locks."""
    line: _Line | None = vars(connection).pop(_LINE, None)
    if line is not None:
        line.cursor.close()


def _watched(connection: sa.Connection, cursor: Any, text: str, given: Any, *, many: bool) -> Any:
    # Whoever listens to SQLAlchemy's own events, a tracer say, sees these statements as it sees all others.
    for before in connection.dispatch.before_cursor_execute:
        text, given = before(connection, cursor, text, given, None, many)
    (cursor.executemany if many else cursor.execute)(text, given)
    for after in connection.dispatch.after_cursor_execute:
        after(connection, cursor, text, given, None, many)
    return cursor


def begun(connection: sa.Connection) -> None:
    """Begin the connection's transaction now.

    On SQLite this waits for the write lock: a time read before it may be ten seconds old when it is used.
    """
    if not connection.in_transaction():
        connection.begin()


def param(name: str, kind: Any = None) -> sa.BindParameter[Any]:
    """A bind parameter `p_<name>`, a double unless said otherwise: a name like a column's would become a SET."""
    return sa.bindparam(f"p_{name}", type_=plain(kind))


def unnested(name: str, /, **kinds: Any) -> sa.TableValuedAlias:
    """Array parameters side by side as a table of that name: column `x` for `p_x`, and `ord`, counting from 1.

    Only where arrays can be had, which is where statements are composed.
    """
    arrays = [sa.bindparam(f"p_{column}", type_=sa.ARRAY(plain(kind))) for column, kind in kinds.items()]
    columns = [sa.column(column, plain(kind)) for column, kind in kinds.items()]
    return sa.func.unnest(*arrays).table_valued(*columns, with_ordinality="ord", name=name).render_derived()


def plain(kind: Any) -> Any:
    """A type without its collation, which has no place in a parameter; a double where none is given."""
    if isinstance(kind, sa.Text) or kind is sa.Text:
        return sa.Text()
    return sa.Double() if kind is None else kind
