"""Under mutmut every test builds its statements anew: a mutant of a builder would otherwise never be asked."""

from __future__ import annotations

import os

import pytest

from recovery.backend import statement


@pytest.fixture(autouse=True)
def fresh_statements() -> None:
    """Forget what was built, where mutmut looks at which tests reach what, or has broken something."""
    if "MUTANT_UNDER_TEST" in os.environ:
        statement._statements.clear()
        statement._ready.clear()
