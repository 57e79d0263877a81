"""Receivers that go wrong on the way, for whoever tests a delivery."""

from __future__ import annotations

from typing import Any


class LostAck:
    """A receiver whose first answer is lost on the way, after it has stored the reply."""

    def __init__(self, receiver: Any) -> None:
        self.receiver, self.lost = receiver, False

    def accept(self, reply_id: str, payload: str) -> Any:
        """Store the reply; the first time, break before the answer arrives."""
        answer = self.receiver.accept(reply_id, payload)
        if self.lost:
            return answer
        self.lost = True
        raise TimeoutError("ACK lost")
