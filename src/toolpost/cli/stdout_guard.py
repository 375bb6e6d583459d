"""Keep stdout for the answer of a command. Imports nothing else: benchmarks run it beside other libraries alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO


@contextmanager
def guard_stdout() -> Generator[TextIO]:
    """Yield the real stdout; all other output, including that of child processes, goes to stderr."""
    real = sys.stdout
    try:
        number = real.fileno()
    except OSError:  # not a file: replaced by a test or a host program
        with redirect_stdout(sys.stderr):
            yield real
        return
    real.flush()
    stdout_copy = os.dup(number)
    try:
        os.dup2(sys.stderr.fileno(), number)
        with _open_stream(os.dup(stdout_copy), like=real) as stream, redirect_stdout(sys.stderr):
            yield stream
    finally:
        os.dup2(stdout_copy, number)
        os.close(stdout_copy)


@contextmanager
def _open_stream(number: int, *, like: TextIO) -> Generator[TextIO]:
    stream = open(number, "w", encoding=like.encoding, errors="backslashreplace")  # noqa: SIM115 - closed below
    try:
        yield stream
    finally:
        with suppress(OSError):  # The reader went away, as `head` does; or writing has failed before, and was reported.
            stream.close()
