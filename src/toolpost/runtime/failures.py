"""Errors of calls: from the exceptions of tools, timeouts and cancellations, with tracebacks for the operator."""

from __future__ import annotations

import errno
import os
import sysconfig
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolpost.catalog.threads import loop_error
from toolpost.contracts.errors import (
    ToolCancelledError,
    ToolConnectionError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.tool_runtime import ToolRuntime

LONGEST_TRACEBACK = 8000  # characters that are stored; the end shows where the exception was raised
STOPPED = "stopped"
"""The code of a call that its process stopped, because it shuts down."""
_MOST_FRAMES = 50
# Network errors of the operating system without an exception class.
_NETWORK_ERRNOS = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}
)


def failure_of(raised: BaseException, tool_name: str) -> ToolError:
    """Return the ToolError for an exception; its message contains the type, because many messages are short."""
    raised = loop_error(raised)
    if isinstance(raised, ToolError):
        raised.tool_name = raised.tool_name or tool_name
        return raised
    message = f"{type(raised).__name__}: {str(raised) or 'no message'}"
    error: ToolError
    if isinstance(raised, TimeoutError):
        error = ToolTimeoutError(message, tool_name=tool_name, cause=raised)
    elif isinstance(raised, ConnectionError) or (isinstance(raised, OSError) and raised.errno in _NETWORK_ERRNOS):
        error = ToolConnectionError(message, tool_name=tool_name, cause=raised)
    else:
        error = ToolExecutionError(message, tool_name=tool_name, cause=raised)
    error.is_uncaught = True
    return error


def stopped_error(attempt: Attempt) -> ToolError:
    """Return the error of a call that timed out or was cancelled, or of a cancelled caller."""
    name = attempt.call.tool_name
    doubt = _doubt(attempt)
    if attempt.stopped == "timeout":
        timeout_ms = round(attempt.timeout_s * 1000, 3)
        message = f"Tool execution timed out after {timeout_ms:g}ms{doubt}"
        return ToolTimeoutError(message, timeout_ms=timeout_ms, bound="call", tool_name=name)
    if attempt.stopped == "stopping":
        message = f"the process that ran the call has stopped before it ended{doubt}"
        return ToolCancelledError(message, tool_name=name, code=STOPPED)
    who = "the call was cancelled" if attempt.stopped else "the caller was cancelled"
    return ToolCancelledError(f"{who}{doubt}", tool_name=name)


def expired_error(attempt: Attempt, runtime: ToolRuntime, raised: BaseException) -> ToolTimeoutError:
    """Return the error of an attempt that took longer than `timeout_s` of its source or tool."""
    timeout_ms = round(runtime.attempt_s * 1000, 3)
    message = f"Tool execution timed out after {timeout_ms:g}ms, the limit of one attempt (timeout_s){_doubt(attempt)}"
    return ToolTimeoutError(message, timeout_ms=timeout_ms, tool_name=runtime.name, cause=raised)


def is_in_doubt(attempt: Attempt, runtime: ToolRuntime, error: ToolError) -> bool:
    """Return whether a call may have taken effect, and a retry would repeat the effect."""
    if not attempt.invoked or runtime.spec.replay != "unsafe":
        return False
    if attempt.has_inner:  # the error may be that of one of them
        return True
    return isinstance(error, ToolTimeoutError) or (isinstance(error, ToolConnectionError) and error.sent)


def _doubt(attempt: Attempt) -> str:
    return "; it may have taken effect" if attempt.journaled else ""


class RaisedAt(NamedTuple):
    """The line of a tool's code that raised an exception, or that called the library that did."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{_short_path(self.file)}:{self.line}, in {self.function}"


def find_line(error: ToolError) -> RaisedAt | None:
    """Return the last line of the tool's code in the traceback of an error; None if the tool did not raise it.

    Frames of libraries and of Python itself are skipped, unless there are no others.
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
    """Return the redacted end of the traceback of a tool's exception, at most `LONGEST_TRACEBACK` characters."""
    cause = error.__cause__
    if cause is None:
        return ""
    frames = cause.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_package()):
        frames = frames.tb_next  # frames of Toolpost say nothing about the tool
    lines = traceback.format_exception(type(cause), cause, frames or cause.__traceback__, limit=-_MOST_FRAMES)
    text = redact("".join(lines)).rstrip()
    return text if len(text) <= LONGEST_TRACEBACK else f"…{text[1 - LONGEST_TRACEBACK :]}"


@cache
def _package() -> str:
    return str(Path(__file__).resolve().parents[1]) + os.sep


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of Python and of installed packages, and the prefix of code without a file."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (*{sysconfig.get_path(name) + os.sep for name in names}, "<frozen ")


def _short_path(file: str) -> str:
    """Return the path relative to the working folder, if the file is in it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file
