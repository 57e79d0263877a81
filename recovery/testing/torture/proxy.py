"""A proxy for PostgreSQL that lets everything through, but now and then loses the answer to a COMMIT.

The server has committed by then; the client sees the line end. Of the protocol only the frames of the server's side
are read: a byte that tells the kind, four bytes of length, and for `C` (CommandComplete) the tag.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from typing import Final, NoReturn, Protocol

from recovery.testing.torture.tally import Tally

PIECE_BYTES: Final = 65536
HEAD_BYTES: Final = 5
GAP_MIN: Final = 6.0
"""Of so many answers one is lost at most, on average: work has to go on."""


class Cuts(Protocol):
    """Decides which COMMIT is not answered."""

    def is_next(self) -> bool:
        """Count one COMMIT, and say whether it is to be lost."""
        ...


class Cutter:
    """As many in a second as asked for, the gaps by chance."""

    def __init__(self, chance: random.Random, per_second: float) -> None:
        self._chance = chance
        self._per_second = per_second
        self._began = time.monotonic()
        self._seen = 0
        self._left = 1

    def is_next(self) -> bool:
        self._seen += 1
        self._left -= 1
        if self._left > 0:
            return False
        rate = self._seen / max(time.monotonic() - self._began, 0.1)
        self._left = max(1, round(self._chance.uniform(0.0, 2.0) * max(rate / self._per_second, GAP_MIN)))
        return True


class Frames:
    """Cuts a server's stream into frames; what is not whole yet is kept."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def take(self, data: bytes) -> list[bytes]:
        """The frames that are whole now."""
        self._kept += data
        found = []
        while len(self._kept) >= HEAD_BYTES:
            length = 1 + int.from_bytes(self._kept[1:HEAD_BYTES], "big")
            if len(self._kept) < length:
                break
            found.append(bytes(self._kept[:length]))
            del self._kept[:length]
        return found


def is_commit(frame: bytes) -> bool:
    """Whether the server says with this that it has committed."""
    return frame[:1] == b"C" and frame[HEAD_BYTES:] == b"COMMIT\0"


class Proxy:
    """Serves a listening socket, and leads every connection to the server at `upstream`."""

    def __init__(self, upstream: tuple[str, int], cutter: Cuts, tally: Tally, row: int) -> None:
        self._upstream = upstream
        self._cutter = cutter
        self._tally = tally
        self._row = row

    async def serve(self, listening: socket.socket) -> None:
        """Go on for ever."""
        server = await asyncio.start_server(self._connected, sock=listening)
        async with server:
            await server.serve_forever()

    async def _connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            # asyncio does so itself only for sockets whose protocol number it knows, and an accepted one has none.
            to_client.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host, port = self._upstream
            if host.startswith("/"):
                server, to_server = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                server, to_server = await asyncio.open_connection(host, port)
            ways = [
                asyncio.create_task(_copy(client, to_server)),
                asyncio.create_task(self._answers(server, to_client)),
            ]
            # Whichever side goes away first, the other is let go as well.
            _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in left:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_server.close()
        to_client.close()

    async def _answers(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        frames = Frames()
        while data := await server.read(PIECE_BYTES):
            for frame in frames.take(data):
                if is_commit(frame) and self._is_lost():
                    return
                to_client.write(frame)
            await to_client.drain()

    def _is_lost(self) -> bool:
        self._tally.add(self._row, "commits")
        if not self._cutter.is_next() or self._tally.calm:
            return False
        self._tally.add(self._row, "cuts")
        return True


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(PIECE_BYTES):
        target.write(data)
        await target.drain()


def serve(proxy: Proxy, listening: socket.socket) -> NoReturn:
    """Be the proxy, in a process that was just forked, until it is killed or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    async def whole() -> None:
        task = asyncio.create_task(proxy.serve(listening))
        while os.getppid() == parent:  # noqa: ASYNC110 - nobody sets an Event when a parent dies
            await asyncio.sleep(1.0)
        task.cancel()

    try:
        asyncio.run(whole())
    finally:
        os._exit(0)
