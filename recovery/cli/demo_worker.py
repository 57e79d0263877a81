"""The demo's worker process: claim, say so, wait to be told to go on, commit. It may be killed at any point.

Started by `recovery demo` alone. The URL comes by environment variable, because every user of a machine can read
every process's arguments.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from typing import Final

from recovery import Claim, Queue, RecoveryError

URL_VARIABLE: Final = "RECOVERY_DEMO_URL"
PREFIX: Final = "demo_"
PATIENCE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05


def main() -> int:
    """Run one worker and return its exit status."""
    parser = argparse.ArgumentParser(prog="recovery.cli.demo_worker")
    parser.add_argument("owner")
    parser.add_argument("lease_seconds", type=float)
    given = parser.parse_args()
    try:
        with Queue.open(os.environ[URL_VARIABLE], table_prefix=PREFIX, lease_seconds=given.lease_seconds) as queue:
            return _work(queue, given.owner)
    except RecoveryError as error:
        print(f"recovery demo, {given.owner}: {error}", file=sys.stderr)
        return 2


def _work(queue: Queue, owner: str) -> int:
    claim = _claim(queue, owner)
    if claim is None:
        return 1
    print(json.dumps(dataclasses.asdict(claim)), flush=True)
    if not sys.stdin.readline():  # The demo is gone, and nobody wants the result any more.
        return 1
    queue.finish(claim, {"sum": sum(claim.payload["numbers"])})
    print("committed", flush=True)
    return 0


def _claim(queue: Queue, owner: str) -> Claim | None:
    """Ask until there is something to claim, on the real clock, but not for ever."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        claim: Claim | None = queue.claim(owner)
        if claim is not None:
            return claim
        time.sleep(POLL_SECONDS)
    return None


if __name__ == "__main__":
    sys.exit(main())
