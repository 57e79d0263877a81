"""Whatever ends a batch before its end is BatchFailed, and says how far it came."""

from __future__ import annotations

import pytest

from recovery import BatchFailed
from tests.plugins.queues import AUTH, Plain, envelope


class NoIterator:
    """An iterable that breaks before it gives anything."""

    def __iter__(self):
        raise OSError("gone")


class AsyncNoIterator:
    """The same for asyncio."""

    def __aiter__(self):
        raise OSError("gone")


class AsyncOnce:
    """An asynchronous iterable of one envelope, which then breaks."""

    async def __aiter__(self):
        yield envelope("a")
        raise OSError("gone")


def failed(queue, envelopes):
    """How many were stored, where it stopped, and why."""
    with pytest.raises(BatchFailed) as caught:
        queue.receive_batch(envelopes, AUTH)
    error = caught.value
    assert error.cause is error.__cause__
    return len(error.acks), error.index, type(error.cause)


@pytest.mark.parametrize("nothing", [NoIterator(), None, 5], ids=["raises", "None", "int"])
def test_what_gives_no_iterator(queue, nothing):
    """An iterable that raises at once fails the batch at its first item."""
    wanted = OSError if isinstance(nothing, NoIterator) else TypeError
    assert (0, 0, wanted) == failed(queue, nothing)


@pytest.mark.parametrize(("source", "at"), [(AsyncNoIterator(), 0), (AsyncOnce(), 1)], ids=["at once", "later"])
def test_what_gives_no_asynchronous_iterator(queue, source, at):
    """An asynchronous iterable fails the same; a plain queue takes none."""
    if isinstance(queue, Plain):
        assert (at, at, OSError) == failed(queue, source)
    else:
        assert (0, 0, TypeError) == failed(queue, source)


@pytest.mark.parametrize("end", [StopIteration, StopAsyncIteration])
def test_an_item_that_says_it_is_the_end(queue, stored, monkeypatch, end):
    """Only the iterable ends a batch: a verb that raises what ends a loop has failed at its item."""
    inner = queue.inner if isinstance(queue, Plain) else queue
    receive = inner.receive

    def ended(one, auth):
        if one.message_id == "b":
            raise end
        return receive(one, auth)

    monkeypatch.setattr(inner, "receive", ended)
    stored_before, index, _ = failed(queue, [envelope("a"), envelope("b"), envelope("c")])
    assert (1, 1) == (stored_before, index)
    assert ["a"] == [row["message_id"] for row in stored.rows("inbox")]


def test_an_empty_batch(queue):
    """A batch of nothing is no failure."""
    assert [] == queue.receive_batch([], AUTH)
    assert [] == queue.receive_batch(iter(()), AUTH)
