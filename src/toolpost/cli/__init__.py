"""The command line: `toolpost`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from toolpost import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["--version"], ["-V"]):  # Asked by scripts and installers, so nothing heavy is imported for it.
        sys.stdout.write(f"toolpost {__version__}\n")
        return 0
    if arguments is None:
        # A tenth of a short command's time would go into looking for garbage among the modules that it loads; `runner`
        # begins with it in commands that take longer.
        gc.disable()
    from toolpost.cli.app import run

    return run(given)


def _open_closed_streams() -> None:
    """Open the null device in place of a closed stdout or stderr."""
    # A job may start with either closed, and the next file opened would take its descriptor.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open until the end
