"""Which column of which table holds which secret, and that no other column and no other file does."""

from __future__ import annotations

import sqlalchemy as sa

from recovery import Queue, Receiver, open_engine
from tests.hostile.canaries import columns_with, files_with
from tests.hostile.driving import AUTH, Fails, file_place, filled, message
from tests.hostile.refused_values import SENDER

OPEN = {"allowed_sources": {SENDER}, "backoff": 0.0}
MAY_HOLD = {
    "key": {"tasks.payload", "tasks.result", "outbox.payload", "receipts.payload"},
    "payload": {"tasks.payload"},
    "result": {"tasks.result", "outbox.payload", "receipts.payload"},
    "reason": {"tasks.last_error", "tasks.reason", "journal.why", "outbox.payload", "receipts.payload"},
    "error": {"outbox.last_error", "journal.why"},
}
"""The key stands in the payload and in the result. A reason is the reply of what failed, and what is sent is kept by
the receiver. What a dispatcher was told of a delivery goes nowhere else."""


class Broken:
    """A receiver whose own table refuses a row that holds a secret, after the driver's fashion: with the row."""

    def __init__(self, receiver, canaries):
        self._receiver, self._said = receiver, canaries.option

    def accept(self, reply_id, payload):
        """Store it twice."""

        def twice(connection, _reply_id, _payload):
            for _ in range(2):
                connection.execute(sa.text("INSERT INTO mine VALUES (:said)"), {"said": self._said})

        return self._receiver.accept(reply_id, payload, twice)


def live(place):
    """Everything that can become of a message, a reply and a delivery, with secrets in all of them."""
    with Queue.open(place.url, **OPEN) as queue, Receiver.open(place.url) as receiver:
        held = filled(queue, place.canaries)
        queue.settle(held.delivery, delivered=False, error=place.canaries.error, permanent=True)
        queue.finish(queue.claim_batch("w", 1)[0], {place.canaries.key: place.canaries.result})
        queue.fail(held.other, place.canaries.reason)
        queue.release(held.claim)
        queue.cancel(held.claim.task_id)
        queue.receive(message(place.canaries, "late", deadline=1.0), AUTH)
        queue.receive(message(place.canaries, "far", hops=9), AUTH)
        assert "pending" == getattr(queue.dispatch_once(Broken(receiver, place.canaries), "d"), "state", None)
        while queue.dispatch_once(receiver, "d"):
            pass
        queue.reconcile()
        return {row.state for row in queue.replies()}


def test_every_column(place):
    """Each secret stands in the columns that are for it, and in no other column of any table."""
    place.run("CREATE TABLE mine (said TEXT PRIMARY KEY)", *([] if place.is_file else [granted(place)]))
    assert {"sent", "dead"} == live(place)
    assert MAY_HOLD == columns_with(place.admin_url, place.canaries)


def granted(place):
    """The right to the receiver's own table."""
    return f"GRANT ALL ON mine TO {place.canaries.user}"


def test_what_a_receiver_says(place):
    """What the receiver itself said of a failure is kept where the delivery's error is, and nowhere else."""
    with Queue.open(place.url, **OPEN) as queue:
        queue.receive(message(place.canaries, hops=9), AUTH)
        assert "pending" == getattr(queue.dispatch_once(Fails(place.canaries), "d"), "state", None)
    found = columns_with(place.admin_url, place.canaries)
    assert {"outbox.last_error", "journal.why"} == found["error"]


def test_every_file(tmp_path):
    """A file's log of writes holds what the file holds; the line of writers and the map of the log hold nothing."""
    with file_place(tmp_path) as place, Queue.open(place.url, **OPEN) as queue:
        filled(queue, place.canaries)
        names = {path.name for path in tmp_path.iterdir()}
        found = files_with(tmp_path, place.canaries)
    assert {"secret.db", "secret.db-wal", "secret.db-shm", "secret.db-turns"} == names
    assert {"key", "payload", "result", "reason"} == set(found)
    assert set.union(*found.values()) <= {"secret.db", "secret.db-wal"}


def test_a_secret_in_the_wrong_place_is_seen(place, tmp_path):
    """Planted: in a column that is not for it, in a table of somebody else's, and in a file beside the database."""
    live_url = place.url
    place.run("CREATE TABLE mine (said TEXT)")
    with Queue.open(live_url, **OPEN) as queue:
        filled(queue, place.canaries)
    engine = open_engine(place.admin_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE journal SET owner = :said"), {"said": place.canaries.payload})
        connection.execute(sa.text("INSERT INTO mine VALUES (:said)"), {"said": place.canaries.password})
    engine.dispose()
    found = columns_with(place.admin_url, place.canaries)
    assert ({"tasks.payload", "journal.owner"}, {"mine.said"}) == (found["payload"], found["password"])
    (tmp_path / "secret.db-turns").write_text(f"x{place.canaries.result}x")
    assert "secret.db-turns" in files_with(tmp_path, place.canaries)["result"]
