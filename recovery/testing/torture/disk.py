"""A small file system that can be filled up: only what is tortured runs out of room."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from recovery.errors import Misconfigured

SIZE_MEGABYTES: Final = 64
FILLER: Final = "filler"
CLONE_NEWNS: Final = 0x00020000
"""Linux: a view of the mounts of one's own, which is gone with the last process that has it."""
PIECES: Final = (1024 * 1024, 4096, 1)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Let a folder be a small file system in memory, for this process and its children only.

    Raises Misconfigured where that is not allowed.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Misconfigured("--full-disk mounts a small file system, which only root on Linux can.")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise Misconfigured(f"--full-disk needs mounts of its own: {os.strerror(ctypes.get_errno())}.")
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MEGABYTES}m,mode=0700", "tmpfs", str(folder))
    try:
        yield
    finally:
        _run("umount", "--lazy", str(folder))


def fill(folder: Path, seconds: float) -> bool:
    """Take all room that is left there, keep it for a while, and give it back."""
    path = folder / FILLER
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for size in PIECES:
            with contextlib.suppress(OSError):
                while os.write(file, bytes(size)):
                    pass
        time.sleep(seconds)
    finally:
        os.close(file)
        path.unlink()
    return True


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the system's own
    if done.returncode:
        raise Misconfigured(f"--full-disk: {command[0]} failed: {done.stderr.strip()}")
