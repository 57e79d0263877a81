"""The line between dispatchers and receivers: an answer, an error by its name, or a line that ended too early."""

from __future__ import annotations

import socket
import threading

import pytest

from recovery.testing.torture import wire


@pytest.fixture
def answering():
    """A receiver's port that takes one message and answers with these bytes, and what it was sent."""
    threads = []

    def make(answer):
        listening = socket.create_server(("127.0.0.1", 0))
        heard: list[dict[str, object]] = []

        def answer_one():
            with listening, listening.accept()[0] as line:
                heard.append(wire.read(line))
                line.sendall(answer)

        threads.append(threading.Thread(target=answer_one))
        threads[-1].start()
        return int(listening.getsockname()[1]), heard

    yield make
    for thread in threads:
        thread.join(timeout=60)


@pytest.mark.parametrize("duplicate", [True, False])
def test_a_reply_is_sent_whole_and_answered(answering, duplicate):
    """Whatever stands in it, and also where it does not come in one piece."""
    port, heard = answering(b'{"duplicate": %s}\n' % str(duplicate).lower().encode())
    payload = "ä\n\0" * 100_000
    assert duplicate is wire.send(port, "reply:x", payload)
    assert [{"reply_id": "reply:x", "payload": payload}] == heard


def test_an_error_is_its_name(answering):
    """It is no lost answer: the receiver said what it would not do."""
    port, _ = answering(b'{"error": "PayloadCollision"}\n')
    with pytest.raises(wire.Refused, match=r"^PayloadCollision$"):
        wire.send(port, "reply:x", "{}")


@pytest.mark.parametrize("answer", [b"", b'{"duplicate": true}'], ids=["none", "a part"])
def test_a_line_without_its_end_is_a_lost_answer(answering, answer):
    """Also where what did come could be read as one."""
    port, _ = answering(answer)
    with pytest.raises(ConnectionError):
        wire.send(port, "reply:x", "{}")


def test_a_line_has_an_end(answering, monkeypatch):
    """Who never ends one does not fill the memory."""
    monkeypatch.setattr(wire, "LINE_BYTES_MAX", 100)
    port, _ = answering(b" " * 500 + b'{"duplicate": true}')
    with pytest.raises(ConnectionError):
        wire.send(port, "reply:x", "{}")
