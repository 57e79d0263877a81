"""The proxy: it passes everything on, and loses exactly the answers that it should."""

from __future__ import annotations

import os
import random
import signal
import socket

import psycopg
import pytest
import sqlalchemy as sa

from recovery.testing.reading import plain
from recovery.testing.torture.company import forked
from recovery.testing.torture.places import address, through
from recovery.testing.torture.proxy import Cutter, Frames, Proxy, is_commit, serve
from recovery.testing.torture.tally import Tally

COMMIT = b"C\x00\x00\x00\x0bCOMMIT\x00"
READY = b"Z\x00\x00\x00\x05I"


class EveryThird:
    """A cutter without chance."""

    seen = 0

    def is_next(self):
        self.seen += 1
        return self.seen % 3 == 0


@pytest.fixture
def proxied(postgres_database):
    """The URL of a database behind a proxy that loses every third answer to a COMMIT, and the proxy's tally."""
    tally = Tally()
    upstream = address(postgres_database)
    assert upstream is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = forked(lambda: serve(Proxy(upstream, EveryThird(), tally, 0), listening))
        yield plain(sa.make_url(through(postgres_database, listening.getsockname()[1]))), tally
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def test_the_answer_is_lost_and_the_rows_are_there(proxied, postgres_database):
    """A client learns nothing of every third COMMIT, and each of them took effect."""
    url, tally = proxied
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE seen (n INT)")
    lost = []
    for number in range(1, 7):
        try:
            with psycopg.connect(url) as connection:
                connection.execute("INSERT INTO seen VALUES (%s)", (number,))
        except psycopg.OperationalError:
            lost.append(number)
    assert [3, 6] == lost
    with psycopg.connect(postgres_database) as connection:
        assert [(n,) for n in range(1, 7)] == connection.execute("SELECT n FROM seen ORDER BY n").fetchall()
    assert (6, 2) == (tally.get(0, "commits"), tally.get(0, "cuts"))


def test_nothing_is_lost_once_the_faults_are_over(proxied):
    """Calm is for every process at once."""
    url, tally = proxied
    tally.be_calm()
    for _ in range(6):
        with psycopg.connect(url) as connection:
            connection.execute("SELECT 1")
    assert 0 == tally.get(0, "cuts")


def test_frames_are_whole_however_they_come():
    """A stream is cut into the same frames, wherever the pieces end."""
    stream = READY + COMMIT + READY
    for at in range(len(stream) + 1):
        frames = Frames()
        assert [READY, COMMIT, READY] == frames.take(stream[:at]) + frames.take(stream[at:])


def test_only_a_commit_is_one():
    """Neither another tag, nor another kind of frame with the same text."""
    assert is_commit(COMMIT)
    assert not is_commit(READY)
    assert not is_commit(b"D" + COMMIT[1:])
    assert not is_commit(b"C\x00\x00\x00\x0dROLLBACK\x00")


def test_as_many_are_cut_as_was_asked_for(monkeypatch):
    """Five in a second, at whatever rate the commits come."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for rate in (50, 400):
        now[0] = 0.0
        cutter = Cutter(random.Random(1), 5.0)
        cuts = 0
        for _ in range(100 * rate):
            now[0] += 1 / rate
            cuts += cutter.is_next()
        assert 400 < cuts < 600
