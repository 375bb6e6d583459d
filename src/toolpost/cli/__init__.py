"""The command line: `toolpost`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from toolpost import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:  # Asked by scripts and installers, so nothing heavy is imported for it.
        sys.stdout.write(f"toolpost {__version__}\n")
        return 0
    from toolpost.cli.app import run

    return run(given)
