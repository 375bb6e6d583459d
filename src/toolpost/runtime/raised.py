"""Exceptions that the code of a tool raised: where that was, and the traceback for the log and the operator."""

from __future__ import annotations

import os
import sysconfig
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.errors import ToolError

LONGEST_TRACEBACK = 8000  # characters that are stored; the end says where the exception was raised
_MOST_FRAMES = 50


class RaisedAt(NamedTuple):
    """The line of a tool's own code at which an exception left it, or came into it from a library."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{_short_path(self.file)}:{self.line}, in {self.function}"


def find_line(error: ToolError) -> RaisedAt | None:
    """Return the last line of the tool's own code in the traceback of an error; None where the tool did not raise it.

    Frames of libraries and of Python itself are passed over, unless there are no others.
    """
    cause = error.__cause__
    if not error.is_uncaught or cause is None:
        return None
    frames = traceback.extract_tb(cause.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith(_package())]
    own = [frame for frame in outside if not frame.filename.startswith(_libraries())]
    for frame in (*own[-1:], *outside[:1], *frames[-1:]):
        return RaisedAt(frame.filename, frame.lineno or 0, frame.name)
    return None


def format_traceback(error: ToolError, redact: Callable[[str], str]) -> str:
    """Return the redacted end of the traceback of what a tool raised, at most `LONGEST_TRACEBACK` characters."""
    cause = error.__cause__
    if cause is None:
        return ""
    frames = cause.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_package()):
        frames = frames.tb_next  # how Toolpost called the tool says nothing about the tool
    lines = traceback.format_exception(type(cause), cause, frames or cause.__traceback__, limit=-_MOST_FRAMES)
    text = redact("".join(lines)).rstrip()
    return text if len(text) <= LONGEST_TRACEBACK else f"…{text[1 - LONGEST_TRACEBACK :]}"


@cache
def _package() -> str:
    return str(Path(__file__).resolve().parents[1]) + os.sep


@cache
def _libraries() -> tuple[str, ...]:
    """Return where Python and installed packages are, and the names of code without a file."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (*{sysconfig.get_path(name) + os.sep for name in names}, "<frozen ")


def _short_path(file: str) -> str:
    """Return the path from the working folder, where the file is below it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file
