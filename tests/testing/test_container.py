"""A server in a container: its URL survives a kill, and whoever cannot have one is told why."""

from __future__ import annotations

import contextlib
import sys
import threading

import psycopg
import pytest
import sqlalchemy as sa
import testcontainers.community.postgres
from docker.errors import DockerException

from recovery import Misconfigured
from recovery.testing.torture import container
from recovery.testing.torture.container import Container, contained
from recovery.testing.torture.server import embedded

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


class Engine:
    """Stands for Docker with one container in it, whose server is one of this machine's and comes up late."""

    def __init__(self, server):
        self.server = server
        self.starts = []

    def start(self):
        """As Docker does: it returns before the server answers."""
        self.starts.append(threading.Timer(0.3, self.server.start))
        self.starts[-1].start()

    def kill(self):
        """Everything in the container is gone."""
        self.server.crash()


@pytest.fixture
def running(postgres_server, monkeypatch):
    """A container whose server runs."""
    with embedded() as server:
        engine = Engine(server)
        monkeypatch.setattr(Container, "_own", lambda _: engine)
        yield Container("identity", server.url)
        for start in engine.starts:
            start.join()


def test_after_a_kill_it_answers_under_the_same_url(running):
    """`start` returns once it does, though Docker said so earlier; what was committed is there."""
    with psycopg.connect(running.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n INT)")
    running.crash()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(running.url)
    running.start()
    with psycopg.connect(running.url) as connection:
        assert [] == connection.execute("SELECT n FROM kept").fetchall()


def test_a_server_that_does_not_come_back_is_not_waited_for_for_ever(monkeypatch):
    """The torture says so, and not the driver."""
    monkeypatch.setattr(Container, "_own", lambda _: Engine(contextlib.nullcontext()))
    monkeypatch.setattr(Engine, "start", lambda _: None)
    monkeypatch.setattr(container, "PATIENCE_SECONDS", 0.1)
    with pytest.raises(TimeoutError, match="does not answer"):
        Container("identity", NOWHERE).start()


class Image:
    """Stands for a container of testcontainers'."""

    made: list[Image]

    def __init__(self, image):
        self.image, self.ports, self.is_over = image, {}, False
        self.id = "identity"
        Image.made = [self]

    def with_bind_ports(self, inside, outside):
        """Which port of this machine leads to it."""
        self.ports[inside] = outside
        return self

    def get_connection_url(self):
        """In the words of another driver."""
        return f"postgresql+psycopg2://test:secret@localhost:{self.ports[5432]}/test"

    def get_wrapped_container(self):
        """What Docker knows of it."""
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over = True


def test_the_port_is_chosen_before_and_the_container_removed_after(monkeypatch):
    """A port that Docker chose would be another one after a kill. The password is in the URL, the driver is not."""
    monkeypatch.setattr(testcontainers.community.postgres, "PostgresContainer", Image)
    with contained("postgres:16") as server:
        (image,) = Image.made
        port = image.ports[container.PORT]
        assert f"postgresql://test:secret@localhost:{port}/test" == server.url
        assert ("postgres:16", "identity", False) == (image.image, server._identity, image.is_over)
        assert sa.make_url(server.url).port not in (None, container.PORT)
    assert image.is_over


def test_without_testcontainers_there_is_a_sentence(monkeypatch):
    """What is missing is named."""
    monkeypatch.setitem(sys.modules, "testcontainers.community.postgres", None)
    with pytest.raises(Misconfigured, match="pip install 'testcontainers"), contained("postgres:17"):
        pytest.fail("it began")


def test_without_docker_there_is_a_sentence(monkeypatch):
    """An engine that does not answer, or that has no such image, is no traceback."""

    def refuse(_):
        raise DockerException("nobody is there")

    monkeypatch.setattr(Image, "__enter__", refuse)
    monkeypatch.setattr(testcontainers.community.postgres, "PostgresContainer", Image)
    with pytest.raises(Misconfigured, match=r"a Docker engine that answers.*nobody is there"), contained("postgres:17"):
        pytest.fail("it began")
