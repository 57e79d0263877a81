"""Arrays as the library writes them for PostgreSQL: what is read there is what was given, element by element."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.backend.statement import array_text

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
HOSTILE = [
    "",
    "NULL",
    "null",
    '"',
    '\\"',
    "\\",
    "\\\\",
    "{}",
    "{",
    "},{",
    ",",
    " a ",
    "\n\t",
    "'",
    "$1",
    "%s",
    "a" * 70_000,
]


@pytest.fixture(scope="module")
def line(postgres_server):
    """A connection to any database of the server."""
    url = postgres_server.create_database()
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened
    postgres_server.drop_database(url)


def read(line, kind, items):
    """What the server makes of it."""
    (found,) = line.execute(f"SELECT %s::{kind}[]", [array_text(items)]).fetchone()
    return found


def test_hostile_texts(line):
    """Whatever means something in an array's text is only text in an element; None is NULL."""
    assert [*HOSTILE, None] == read(line, "text", [*HOSTILE, None])


def test_none_of_anything(line):
    """An array without elements."""
    assert [] == read(line, "text", [])


@given(st.lists(TEXTS | st.none()))
def test_texts(line, items):
    """Any texts."""
    assert items == read(line, "text", items)


@given(st.lists(st.floats() | st.none()))
def test_doubles(line, items):
    """Any doubles, to the last bit."""
    assert repr(items) == repr(read(line, "float8", items))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers(line, items):
    """Any whole numbers that a column can hold."""
    assert items == read(line, "bigint", items)


@given(st.lists(st.booleans() | st.none()))
def test_truths(line, items):
    """Yes, no, and unknown."""
    assert items == read(line, "bool", items)
