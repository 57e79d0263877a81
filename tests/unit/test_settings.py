from __future__ import annotations

import copy
import pickle

import pytest

from recovery import Misconfigured, migrate
from recovery.schema import tables
from recovery.settings import Backoff, Settings

SETTINGS = [
    Settings(),
    Settings(allowed_sources={"agent-a"}, lease_seconds=5.0, backoff=Backoff(1.0, 2.0), table_prefix="a_"),
]
COPIES = {
    "pickle": lambda settings: pickle.loads(pickle.dumps(settings)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.table_prefix or "no prefix")
def test_settings_keep_their_tables(settings, how):
    """Tables are compared by identity: settings that were copied or sent to another process name this one's."""
    again = COPIES[how](settings)
    assert settings == again
    assert tables(settings.table_prefix) is again.tables


@pytest.mark.parametrize("prefix", ["sqlite_", "sqlite_a", "A", "1", "_", "a-", "a;", "a\n", "é", "a" * 25])
def test_refused_prefixes(prefix):
    """A prefix that one of the two databases cannot use is refused for both, with a sentence."""
    with pytest.raises(Misconfigured, match="table_prefix"):
        Settings(table_prefix=prefix)


@pytest.mark.parametrize("prefix", ["", "a", "a_", "sqlite", "sqlitex_", "a_sqlite_", "a" * 24])
def test_prefixes(tmp_path, prefix):
    """Any other prefix is taken, and makes tables on the database that has reserved names of its own."""
    assert prefix == Settings(table_prefix=prefix).tables.prefix
    migrate(f"sqlite:///{tmp_path}/x.db", table_prefix=prefix)
