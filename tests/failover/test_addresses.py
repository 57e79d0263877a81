"""One URL for both servers: it leads to whichever takes writes, by every door."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy as sa

from recovery import AsyncQueue, Queue, ReadOnly, Unavailable, migrate
from recovery.testing.reading import snapshot
from tests.failover.servers import STRICT, pair_of_servers
from tests.plugins.queues import AUTH, SOURCES, envelope

FAR = 9_999_999_999.0


@pytest.fixture(scope="module")
def migrated():
    """A migrated pair that nobody kills."""
    with pair_of_servers(STRICT) as pair:
        migrate(pair.url)
        yield pair


def with_query(pair, **query):
    """The pair's URL with another query."""
    return sa.make_url(pair.url).set(query=query).render_as_string(hide_password=False)


@pytest.fixture(params=["lists", "pairs"])
def url(request, migrated):
    """Both ways in which SQLAlchemy takes several hosts; the standby comes first."""
    ports = [migrated.standby.port, migrated.primary.port]
    where: dict[str, Any] = {"host": "127.0.0.1,127.0.0.1", "port": ",".join(map(str, ports))}
    if request.param == "pairs":
        where = {"host": tuple(f"127.0.0.1:{port}" for port in ports)}
    return with_query(migrated, **where, target_session_attrs="read-write")


def test_every_door_finds_the_primary(url):
    """A queue, one for asyncio, migrations, and the command."""

    async def receive():
        async with await AsyncQueue.open(url, allowed_sources=SOURCES) as queue:
            return await queue.receive(envelope(deadline=FAR), AUTH)

    migrate(url)
    with Queue.open(url, allowed_sources=SOURCES) as queue:
        task_id = queue.receive(envelope(deadline=FAR), AUTH).task_id
    assert task_id == asyncio.run(receive()).task_id
    command = [sys.executable, "-m", "recovery", "status", "--json"]
    done = subprocess.run(command, env={**os.environ, "RECOVERY_URL": url}, capture_output=True, text=True, check=False)
    assert (0, 1) == (done.returncode, json.loads(done.stdout)["received"]), done.stderr


@pytest.mark.parametrize("url", ["lists", "pairs"], indirect=True)
def test_the_checker_finds_the_primary(url):
    """The drivers' own look at the tables goes where the library goes."""
    with snapshot(url) as seen:
        seen.rows("", "tasks")


def test_a_standby_alone_only_reads(migrated):
    """Without `target_session_attrs` the first that answers is taken; a standby refuses to write, by its name."""
    node = migrated.standby
    with Queue.open(with_query(migrated, host="127.0.0.1", port=str(node.port)), allowed_sources=SOURCES) as queue:
        queue.counts()
        for verb in (lambda: queue.receive(envelope("x", deadline=FAR), AUTH), lambda: queue.claim("w")):
            with pytest.raises(ReadOnly):
                verb()


def test_no_server_that_takes_writes_is_unavailable(migrated):
    """A standby is there and no primary: as during a failover, that may be tried again."""
    where = {"host": "127.0.0.1", "port": str(migrated.standby.port), "target_session_attrs": "read-write"}
    with pytest.raises(Unavailable) as caught:
        Queue.open(with_query(migrated, **where), allowed_sources=SOURCES)
    assert caught.value.retryable
