"""persist-queue: SQLiteQueue, where a get deletes the item."""

from persistqueue import SQLiteQueue  # type: ignore[import-not-found]  # it lives in the peer's own environment

from benchmarks.peers.driver import Options, Outcome, main
from benchmarks.peers.persistqueue_peer import drive as drive_kind


def drive(options: Options) -> Outcome:
    """One run."""
    return drive_kind(options, SQLiteQueue)


if __name__ == "__main__":
    main("persist-queue", drive)
