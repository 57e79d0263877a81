"""The torture with a server in a container, which is killed with all that is in it, now and then."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.plugins.commands import ROOT
from tests.plugins.containers import image

MINUTES = "0.4"
"""In which this seed plans three kills of the container."""


def test_a_killed_container_breaks_no_promise(postgres_server):
    """Every process of the server is gone at once, and what was acknowledged is there when it is back."""
    command = [sys.executable, "-m", "recovery", "torture", "--container", image(), "--json"]
    done = subprocess.run(
        [*command, "--minutes", MINUTES, "--seed", "1"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert (0, []) == (done.returncode, report["findings"]), done.stderr
    assert all(report[name] > 0 for name in ("crashes", "kills", "stops", "cuts", "acknowledged"))
    assert (0, 0) == (report["lost"], report["extra_effects"])
