"""The checker shares nothing with what it judges."""

from __future__ import annotations

import subprocess
import sys

import recovery


def test_the_checker_imports_nothing_that_it_judges():
    """Neither repositories nor queue nor transactions, nor the states and the canonical JSON of the code."""
    script = (
        "import sys, types; package = types.ModuleType('recovery');"
        "package.__path__ = [sys.argv[1]]; sys.modules['recovery'] = package;"
        "import recovery.testing.checker;"
        "print(*sorted(name for name in sys.modules if name.startswith('recovery.')))"
    )
    # The face of the package imports everything; the checker is imported here without it.
    found = subprocess.run(
        [sys.executable, "-c", script, recovery.__path__[0]], capture_output=True, text=True, check=True
    )
    loaded = found.stdout.split()
    assert "recovery.testing.checker" in loaded
    assert [] == [name for name in loaded if not name.startswith("recovery.testing")]
