"""URLs that cannot be meant: every door gives the same answer to each."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from recovery import Queue, Receiver, migrate, open_engine
from tests.hostile.ways import raised

# SQLAlchemy refuses a user, password, host or port in the URL of a file; our engines have a `creator`, and it is not
# asked. So a slash too few, or a URL meant for a server, opens or makes a file of that name in the folder at hand.

NO_FILES = ("sqlite://me:secret@host/missing.db", "sqlite://host/missing.db", "sqlite://host:5432/missing.db")


def answers(url):
    """What each door says to a URL."""
    calls = {
        "open_engine": lambda: open_engine(url),
        "Queue": lambda: Queue.open(url),
        "Receiver": lambda: Receiver.open(url),
        "migrate": lambda: migrate(url),
    }
    return {name: type(raised(call)).__name__ for name, call in calls.items()}


@pytest.mark.parametrize("url", NO_FILES)
def test_a_host_in_the_url_of_a_file(tmp_path, monkeypatch, url):
    """A file has no host and no user: such a URL is Misconfigured, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    assert {"Misconfigured"} == set(answers(url).values())
    assert [] == list(tmp_path.iterdir())


# An option that libpq does not know: the driver refuses it before it connects to anything.


@pytest.fixture
def with_option(postgres_server):
    """The URL of a server that is there, with an option that nobody knows."""
    url = sa.make_url(postgres_server.admin_url).update_query_dict({"nonsense": "1"})
    return url.render_as_string(hide_password=False)


def connecting(url):
    """What each door that connects says to a URL."""
    found = answers(url)
    assert "NoneType" == found.pop("open_engine")
    return set(found.values())


def test_an_option_that_nobody_knows(with_option):
    """One event has one error class: what is wrong with a URL is Misconfigured at every door."""
    assert {"Misconfigured"} == connecting(with_option)
