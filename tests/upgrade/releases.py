"""Two releases of the library side by side: the one of this checkout, and the previous one out of its wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
PATIENCE_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Release:
    """A release by the folder that it is imported from, which comes before everything else on the path."""

    name: str
    folder: Path

    def start(self, script: str, *arguments: object, stderr: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
        """A script of this folder, running with this release and two pipes."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RECOVERY_"))}
        return subprocess.Popen(
            [sys.executable, "-P", HERE / script, *map(str, arguments)],
            cwd=self.folder,
            env={**ours, "PYTHONPATH": str(self.folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def asked(self, script: str, *arguments: object) -> Any:
        """What a script prints as JSON that runs to its end."""
        process = self.start(script, *arguments, stderr=None)
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert 0 == process.returncode, out
        return json.loads(out)


def current() -> Release:
    """This checkout."""
    return Release("current", ROOT)


def previous(folder: Path) -> Release:
    """The previous release, unpacked into a folder, with today's recorder of histories, which it did not have."""
    (wheel,) = (HERE / "previous").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    shutil.copytree(
        ROOT / "recovery" / "testing",
        folder / "recovery" / "testing",
        ignore=shutil.ignore_patterns("__pycache__", "torture"),
    )
    return Release("previous", folder)
