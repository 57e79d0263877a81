"""What a release says of a database, as JSON: run with one or the other release on the path.

Arguments: `open` or `migrate`, and the URL.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import recovery
from recovery.schema import VERSION


def said(call: Callable[[], object]) -> list[str]:
    """The class of what was raised and its sentence; empty where nothing was."""
    try:
        call()
    except recovery.RecoveryError as error:
        return [type(error).__name__, str(error)]
    return []


def main(what: str, url: str) -> None:
    """Open both doors, or upgrade, and print what came of it."""
    doors = {"queue": recovery.Queue.open, "receiver": recovery.Receiver.open}
    if what == "migrate":
        found = {"migrate": said(lambda: recovery.migrate(url))}
    else:
        found = {name: said(lambda door=door: door(url).close()) for name, door in doors.items()}  # type: ignore[misc]
    print(json.dumps({"version": VERSION, "from": recovery.__file__, **found}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
