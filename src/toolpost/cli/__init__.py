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
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words, is_program=arguments is None)
        sys.stdout.flush()
    except OSError as error:  # from a help text; commands handle errors of their output
        _report_lost_output(error)
        return 1
    return code


def _run(given: list[str], *, is_program: bool) -> int:
    if given in (["--version"], ["-V"]):  # Asked by scripts and installers, so nothing heavy is imported for it.
        sys.stdout.write(f"toolpost {__version__}\n")
        return 0
    if is_program:
        # A tenth of a short command's time would go into looking for garbage among the modules that it loads; `runner`
        # begins with it in commands that take longer.
        gc.disable()
    from toolpost.cli.app import run

    return run(given)


def _report_lost_output(error: OSError) -> None:
    """Report why stdout cannot be written, unless its reader has closed it, as `head` does."""
    from toolpost.cli.output import describe_lost_output

    if not isinstance(error, BrokenPipeError):
        sys.stderr.write(f"failed: {describe_lost_output(error)}\n")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - a pathlib would do no more here
        os.dup2(nowhere.fileno(), sys.stdout.fileno())  # a final flush at exit would fail again


def _open_closed_streams() -> None:
    """Open the null device in place of a closed stdout or stderr."""
    # A job may start with either closed, and the next file opened would take its descriptor.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open until the end
