"""Output of commands: lines as progress while one runs, then its result, or the error that its exit code means."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError, ToolServerError
from toolpost.contracts.lines import RateLimit
from toolpost.contracts.outcomes import NO_META
from toolpost.web.content import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.errors import ToolError
    from toolpost.processes.commands import CommandResult, Stream

Format = Literal["auto", "json", "lines", "text", "bytes"]

_OCTETS = "application/octet-stream"
_TOLD_CHARS = 2000
_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120
_HOLD_S = 0.2
_MAX_HELD = 20
_MAX_LINE_CHARS = 500


class LineProgress:
    """Report the lines of one command as progress.

    Lines are held until the command has run for a moment, because the stdout of a short command is its result and
    not progress. From then on they are reported as they come, within the rate limit.
    """

    def __init__(self, context: Callable[[], ToolContext], redact: Callable[[str], str], *, stdout: bool) -> None:
        self._make_context = context
        self._context: ToolContext | None = None
        self._redact = redact
        self._stdout = stdout
        self._held: deque[tuple[str, Stream]] | None = deque(maxlen=_MAX_HELD)
        self._timer = asyncio.get_running_loop().call_later(_HOLD_S, self._begin)
        self._rate_limit = RateLimit()

    def line(self, text: str, stream: Stream) -> None:
        """Report a line, or hold it while the command is young."""
        if not text.strip() or (stream == "stdout" and not self._stdout):
            return
        if self._held is not None:
            self._held.append((text, stream))
        else:
            self._report(text)

    def end(self) -> None:
        """Report the held lines of stderr, which are in no result, when the command has ended."""
        self._timer.cancel()
        held, self._held = self._held, None
        for text, stream in held or ():
            if stream == "stderr":
                self._report(text)

    def _begin(self) -> None:
        held, self._held = self._held, None
        for text, _ in held or ():
            self._report(text)

    def _report(self, text: str) -> None:
        if not self._rate_limit.allows():
            return
        if self._context is None:
            self._context = self._make_context()
        note = " (lines before this one are left out)" if self._rate_limit.dropped else ""
        self._rate_limit.dropped = 0
        self._context.progress(self._redact(text)[:_MAX_LINE_CHARS] + note)


def parse_output(
    done: CommandResult, *, name: str, kind: Format, success_codes: Collection[int], redact: Callable[[str], str]
) -> ToolOutput:
    """Parse the stdout of a command; raise when its exit code is not one of success."""
    if done.exit_code not in success_codes:
        raise _failure(done, name, redact)
    content, media_type = _content(done, kind, name, redact)
    meta = {"exit_code": done.exit_code} if done.exit_code else NO_META
    return ToolOutput(content, None, media_type, meta)


def _failure(done: CommandResult, name: str, redact: Callable[[str], str]) -> ToolError:
    said = _end(done.stderr.strip() or done.stdout[-4 * _TOLD_CHARS :].decode("utf-8", "replace"), redact)
    if done.exit_code < 0:
        how = f"Command {name!r} was ended by {_signal_name(-done.exit_code)}"
        return ToolServerError(f"{how}: {said}" if said else how, code="command_killed")
    how = f"Command {name!r} failed with exit code {done.exit_code}"
    return ToolClientError(f"{how}: {said}" if said else f"{how}, and said nothing", code="command_failed")


def _end(text: str, redact: Callable[[str], str]) -> str:
    said = redact(text.strip())
    return said if len(said) <= _TOLD_CHARS else f"... {said[-_TOLD_CHARS:]}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _content(done: CommandResult, kind: Format, name: str, redact: Callable[[str], str]) -> tuple[Any, str]:
    stdout, json_type = done.stdout, ToolOutput(None).media_type
    match kind:
        case "bytes":
            return stdout, _OCTETS
        case "json":
            return _json(done, name, redact), json_type
        case "lines":
            text = _decoded(stdout)
            return [line.removesuffix("\r") for line in text.split("\n")] if text else [], json_type
        case "text":
            return _decoded(stdout), json_type
        case "auto":
            return _guessed(stdout, json_type)


def _json(done: CommandResult, name: str, redact: Callable[[str], str]) -> Any:
    if not done.stdout.strip():
        said = _end(done.stderr, redact)
        message = f"; it said: {said}" if said else ""
        raise ToolOutputError(f"command {name!r} wrote nothing to stdout, where JSON was expected{message}")
    try:
        return parse_json(done.stdout)
    except ValueError as error:
        begins = redact(done.stdout[:_LONGEST_LOOK].decode("utf-8", "replace"))[:_LONGEST_QUOTE]
        msg = f"command {name!r} did not write JSON to stdout: {error}. It begins: {begins!r}"
        raise ToolOutputError(msg) from error


def _guessed(stdout: bytes, json_type: str) -> tuple[Any, str]:
    """Parse an object or an array; other output is text, or bytes where it is no text."""
    if stdout.lstrip()[:1] in (b"{", b"["):
        try:
            return parse_json(stdout), json_type
        except ValueError:
            pass
    try:
        stdout.decode()
    except UnicodeDecodeError:
        return stdout, _OCTETS
    return _decoded(stdout), json_type


def _decoded(stdout: bytes) -> str:
    """Decode output without its last line ending."""
    return stdout.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
