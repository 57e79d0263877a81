"""`python -m recovery` and the installed `recovery` command."""

from __future__ import annotations

import sys

from recovery.errors import RecoveryError


def main() -> None:
    """Run the command. Exits 0, or 1 for a refusal, or 2 for a database or a setting that cannot be used."""
    try:
        from recovery.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.stderr.write("the command needs an extra: pip install 'recovery[cli]'\n")
        sys.exit(2)
    try:
        app()
    except RecoveryError as error:
        sys.stderr.write(f"recovery: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
