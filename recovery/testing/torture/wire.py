"""How a dispatcher reaches a receiver's process: one connection for one reply, a JSON line there and one back."""

from __future__ import annotations

import json
import socket
from typing import Any, Final

ANSWER_SECONDS: Final = 0.8
"""Shorter than a lease: a receiver that was stopped is a lost answer, and the delivery is tried again."""
LINE_BYTES_MAX: Final = 4 * 1024 * 1024


class Refused(Exception):
    """The receiver answered with an error; its class is the text."""


def send(port: int, reply_id: str, payload: str) -> bool:
    """Deliver a reply, and return whether the receiver had it already.

    Raises OSError where no answer came, and Refused where it was an error.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as line:
        write(line, {"reply_id": reply_id, "payload": payload})
        answer = read(line)
    if "error" in answer:
        raise Refused(answer["error"])
    return bool(answer["duplicate"])


def write(line: socket.socket, message: dict[str, Any]) -> None:
    """Send one message."""
    line.sendall(json.dumps(message).encode() + b"\n")


def read(line: socket.socket) -> dict[str, Any]:
    """Receive one message. Raises ConnectionError where the other side went away before its end."""
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = line.recv(65536)
        if not piece or len(data) > LINE_BYTES_MAX:
            raise ConnectionError("the other side went away")
        data += piece
    found: dict[str, Any] = json.loads(data)
    return found
