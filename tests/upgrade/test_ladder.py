"""The ladder: it ends where the metadata ends, all or nothing, however many climb at once."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from recovery import Misconfigured, Queue, SchemaMismatch, migrate, open_engine
from recovery.migrate import ladder, migration_sql
from recovery.schema import VERSION, tables

ROOT = Path(__file__).resolve().parents[2]


def described(index: sa.engine.interfaces.ReflectedIndex) -> str:
    """An index with its columns and the condition of a partial one."""
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return str((index["name"], index["column_names"], index["unique"], options))


def catalog(engine: sa.Engine, prefix: str) -> dict[str, object]:
    """Everything that the database says of the tables with this prefix, constraints and partial indexes included."""
    look = sa.inspect(engine)
    found: dict[str, object] = {}
    for name in sorted(look.get_table_names()):
        if not name.startswith(prefix) or name == f"{prefix}recovery_version":
            continue
        found[name.removeprefix(prefix)] = (
            [
                (
                    c["name"],
                    str(c["type"]),
                    getattr(c["type"], "collation", None),
                    c["nullable"],
                    bool(c.get("identity")),
                )
                for c in look.get_columns(name)
            ],
            sorted((str(c["name"]), c["sqltext"]) for c in look.get_check_constraints(name)),
            look.get_pk_constraint(name),
            sorted(str(key) for key in look.get_foreign_keys(name)),
            sorted(str(key) for key in look.get_unique_constraints(name)),
            sorted(described(index) for index in look.get_indexes(name)),
        )
    return found


def normal(found: dict[str, object], prefix: str) -> str:
    """The catalog as text, without the prefix."""
    return repr(found).replace(prefix, "") if prefix else repr(found)


def test_ladder_and_metadata_end_in_the_same_catalog(empty_url: str) -> None:
    """A table made by the ladder is the table that the repositories write against, to the last constraint."""
    migrate(empty_url, table_prefix="lad_")
    engine = open_engine(empty_url)
    try:
        tables("met_").metadata.create_all(engine)
        assert normal(catalog(engine, "met_"), "met_") == normal(catalog(engine, "lad_"), "lad_")
    finally:
        engine.dispose()


def test_head_of_the_ladder_is_the_version_that_opening_wants() -> None:
    """The constant that opening compares with is the last step of the ladder."""
    steps = sorted(path.name[:4] for path in (ladder() / "versions").glob("0*.py"))
    assert VERSION == steps[-1]


def test_eight_processes_upgrade_at_once(empty_url: str) -> None:
    """Eight processes that migrate one empty database at the same moment all succeed."""
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        assert [VERSION] * 8 == pool.map(migrate, [empty_url] * 8)


def test_a_second_run_changes_nothing(empty_url: str) -> None:
    """Migrating a database that is at head is harmless, and keeps the fence floor's one row."""
    migrate(empty_url)
    assert migrate(empty_url) == VERSION
    engine = open_engine(empty_url)
    with engine.connect() as connection:
        assert [(1, 0)] == [tuple(row) for row in connection.execute(sa.select(tables().fence_floor))]
    engine.dispose()


def test_a_failing_step_leaves_nothing(empty_url: str) -> None:
    """A step that fails half-way leaves no table behind on either database."""
    engine = open_engine(empty_url, create=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE receipts (other INTEGER)")
    with pytest.raises(Exception, match=r"."):
        migrate(empty_url)
    assert ["receipts"] == sa.inspect(engine).get_table_names()
    engine.dispose()


def test_opening_refuses_another_version(empty_url: str) -> None:
    """A database that is too old or too new is refused with a sentence, and left as it is."""
    migrate(empty_url)
    engine = open_engine(empty_url)
    for found, said in (("0000", "recovery migrate"), ("9999", "upgrade recovery")):
        with engine.begin() as connection:
            connection.execute(sa.update(tables().version).values(version_num=found))
        with pytest.raises(SchemaMismatch, match=said):
            Queue.open(empty_url)
        with engine.connect() as connection:
            assert found == connection.execute(sa.select(tables().version.c.version_num)).scalar_one()
    engine.dispose()


def test_alembic_from_the_checkout_does_the_same(empty_url: str) -> None:
    """`alembic upgrade head` makes what `recovery migrate` makes."""
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "RECOVERY_URL": empty_url}, check=True, capture_output=True)
    Queue.open(empty_url).close()


def test_the_file_is_private(tmp_path: Path) -> None:
    """A SQLite file is made readable by its owner only."""
    migrate(f"sqlite:///{tmp_path}/private.db")
    assert stat.S_IMODE((tmp_path / "private.db").stat().st_mode) == 0o600


def test_a_missing_folder_is_named_in_a_sentence(tmp_path: Path) -> None:
    """A file in a folder that does not exist is refused, and the folder is not made."""
    with pytest.raises(Misconfigured, match="folder"):
        migrate(f"sqlite:///{tmp_path}/none/file.db")
    assert not (tmp_path / "none").exists()


def test_the_statements_can_be_printed() -> None:
    """`--sql` prints every table for either database without connecting to one."""
    for url in ("sqlite:///nowhere.db", "postgresql://nobody@nowhere.invalid/none"):
        text = migration_sql(url, table_prefix="p_")
        assert [True] * 7 == [f"CREATE TABLE p_{name}" in text for name in tables().metadata.tables]
    assert not Path("nowhere.db").exists()
