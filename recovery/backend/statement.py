"""Core as the compiler, the driver's own cursor as the runner: what every verb's statements are run by.

Building a statement and executing it through Core costs more than the database's own work on it. So each statement is
built and compiled once for a dialect, and its text then goes to the driver's cursor, in SQLAlchemy's transaction.
Types that need a processor on the way in or out are not used here: text, whole numbers, doubles, and arrays of these.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql import Executable

Build: TypeAlias = Callable[..., Executable]
"""A function of hashable arguments that returns a Core statement. Its bind names begin with `p_`."""
Values: TypeAlias = Mapping[str, Any]


class Statement:
    """The text of one statement for one dialect, and how its rows are named."""

    __slots__ = ("_constants", "row", "text")

    def __init__(self, element: Any, dialect: Dialect) -> None:
        # Both drivers take values by name, and then one that stands in ten places is handed over once.
        kind: Any = type(dialect)
        named = dialect if dialect.paramstyle == "pyformat" else kind(paramstyle="named")
        compiled = element.compile(dialect=named)
        self.text = str(compiled)
        self._constants = {name: value for name, value in compiled.params.items() if not name.startswith("p_")}
        names = element.exported_columns.keys() if hasattr(element, "exported_columns") else ()
        self.row: Any = namedtuple("Row", names) if names else None  # noqa: PYI024 - made from the statement itself

    def given(self, values: Values) -> Values:
        """All values of the statement, with those that it brings itself."""
        return {**self._constants, **values} if self._constants else values


_statements: dict[tuple[Hashable, ...], Statement] = {}


def statement(connection: sa.Connection, build: Build, *arguments: Any) -> Statement:
    """What `build(*arguments)` says in this connection's dialect; built once."""
    dialect = connection.dialect
    key = (dialect.name, dialect.paramstyle, build, arguments)
    found = _statements.get(key)
    if found is None:
        found = _statements[key] = Statement(build(*arguments), dialect)
    return found


def rows(connection: sa.Connection, build: Build, arguments: tuple[Any, ...], values: Values) -> list[Any]:
    """Run a statement that returns rows, and return all of them as named tuples."""
    known = statement(connection, build, *arguments)
    cursor = run(connection, known.text, known.given(values))
    return [known.row._make(row) for row in cursor.fetchall()]


def change(connection: sa.Connection, build: Build, arguments: tuple[Any, ...], *values: Values) -> int:
    """Run a statement that returns none, once for each of `values`, and return how many rows it touched in all."""
    known = statement(connection, build, *arguments)
    if len(values) == 1:
        touched: int = run(connection, known.text, known.given(values[0])).rowcount
    else:
        touched = run_many(connection, known.text, [known.given(one) for one in values]).rowcount
    return touched


def run(connection: sa.Connection, text: str, given: Any) -> Any:
    """Send one statement in the connection's transaction, beginning it where it has not begun."""
    begun(connection)
    cursor: Any = connection.connection.cursor()
    cursor.execute(text, given)
    return cursor


def run_many(connection: sa.Connection, text: str, given: Sequence[Any]) -> Any:
    """The same for many sets of values."""
    begun(connection)
    cursor: Any = connection.connection.cursor()
    cursor.executemany(text, given)
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
