"""Check files against the hashes that they had.

`python -m recovery.examples.check_files FOLDER > files.jsonl` writes one request for each file below FOLDER, for
`recovery send`; `recovery work --handler recovery.examples.check_files:check` answers them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

WITHIN_SECONDS = 3600.0


def check(payload: dict[str, Any]) -> dict[str, Any]:
    """The handler: compare the file at `path` with `sha256`; the verdict is match, mismatch or missing."""
    path = Path(payload["path"])
    if not path.is_file():
        return {"path": payload["path"], "verdict": "missing", "sha256": None}
    found = hash_of(path)
    return {"path": payload["path"], "verdict": "match" if found == payload["sha256"] else "mismatch", "sha256": found}


def hash_of(path: Path) -> str:
    """The SHA-256 of a file, in lower-case hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def request(path: Path, deadline: float) -> dict[str, Any]:
    """What asks for one file to be checked by then.

    Sending the same line twice is one message. A later run has another deadline and asks for another check, so that
    its message has another id: under the same one it would collide.
    """
    found = hash_of(path)
    identity = hashlib.sha256(f"{path}\n{found}\n{deadline}".encode()).hexdigest()[:32]
    return {"message_id": f"check:{identity}", "deadline": deadline, "payload": {"path": str(path), "sha256": found}}


def main() -> None:
    """Write one JSON line for each file below the folder that was named."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():  # noqa: PLR2004 - one argument
        sys.exit("name one folder that exists: python -m recovery.examples.check_files FOLDER > files.jsonl")
    deadline = float(int(time.time() + WITHIN_SECONDS))
    output = os.fstat(sys.stdout.fileno())
    for path in sorted(Path(sys.argv[1]).resolve().rglob("*")):
        # What this writes to may lie in the folder itself, and is not finished yet.
        if path.is_file() and not os.path.samestat(path.stat(), output):
            sys.stdout.write(json.dumps(request(path, deadline)) + "\n")


if __name__ == "__main__":
    main()
