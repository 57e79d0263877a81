"""What is open until its block ends: `with` and `async with` for whatever has a `close`."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Closes at the end of its `with` block."""

    def close(self) -> None:
        """Give up what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClosing:
    """Closes at the end of its `async with` block."""

    async def close(self) -> None:
        """Give up what is held."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
