"""Output of commands: its format, errors, and progress by line."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Literal

from toolpost.contracts import errors
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.outcomes import NO_META
from toolpost.http.content import parse_json
from toolpost.policy.progress import ProgressReporter
from toolpost.processes.commands import CommandResult, Stream

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

Format = Literal["auto", "json", "lines", "text", "bytes"]
_OCTETS = "application/octet-stream"
_MAX_ERROR_CHARS = 2000
_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120
_HOLD_S = 0.2
_MAX_EARLY_LINES = 20
_MAX_LINE_CHARS = 500


def parse_output(
    done: CommandResult, *, name: str, kind: Format, success_codes: Collection[int], redact: Callable[[str], str]
) -> ToolOutput:
    """Parse the stdout of a command; raise an error if its exit code does not mean success."""
    if done.exit_code not in success_codes:
        raise _failure(done, name, redact)
    content, media_type = _content(done, kind, name, redact)
    meta = {"exit_code": done.exit_code} if done.exit_code else NO_META
    return ToolOutput(content, None, media_type, meta)


class LineProgress:
    """Reporter of the lines of one command as progress.

    Lines are held until the command has run for a moment, because the stdout of a short command is its result, not
    progress. After that, they are reported as they arrive, within the rate limit.
    """

    def __init__(self, context: Callable[[], ToolContext], redact: Callable[[str], str], *, stdout: bool) -> None:
        note = " (earlier lines are omitted)"
        self._report = ProgressReporter(context, redact=redact, max_chars=_MAX_LINE_CHARS, gap_note=note).report
        self._stdout = stdout
        self._early_lines: deque[tuple[str, Stream]] | None = deque(maxlen=_MAX_EARLY_LINES)
        self._timer = asyncio.get_running_loop().call_later(_HOLD_S, self._begin)

    def line(self, text: str, stream: Stream) -> None:
        """Report a line, or hold it if the command has just started."""
        if not text.strip() or (stream == "stdout" and not self._stdout):
            return
        if self._early_lines is not None:
            self._early_lines.append((text, stream))
        else:
            self._report(text)

    def end(self) -> None:
        """Report the held lines of stderr, which are not part of a result, when the command has ended."""
        self._timer.cancel()
        lines, self._early_lines = self._early_lines, None
        for text, stream in lines or ():
            if stream == "stderr":
                self._report(text)

    def _begin(self) -> None:
        lines, self._early_lines = self._early_lines, None
        for text, _ in lines or ():
            self._report(text)


def _failure(done: CommandResult, name: str, redact: Callable[[str], str]) -> errors.ToolError:
    output = _end(done.stderr.strip() or done.stdout[-4 * _MAX_ERROR_CHARS :].decode("utf-8", "replace"), redact)
    if done.exit_code < 0:
        how = f"Command {name!r} was ended by {_signal_name(-done.exit_code)}"
        return errors.ToolServerError(f"{how}: {output}" if output else how, code="command_killed")
    how = f"Command {name!r} failed with exit code {done.exit_code}"
    return errors.ToolClientError(f"{how}: {output}" if output else f"{how}, and said nothing", code="command_failed")


def _end(text: str, redact: Callable[[str], str]) -> str:
    output = redact(text.strip())
    return output if len(output) <= _MAX_ERROR_CHARS else f"... {output[-_MAX_ERROR_CHARS:]}"


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
            text = _decode_output(stdout)
            return [line.removesuffix("\r") for line in text.split("\n")] if text else [], json_type
        case "text":
            return _decode_output(stdout), json_type
        case "auto":
            return _guess_content(stdout, json_type)


def _json(done: CommandResult, name: str, redact: Callable[[str], str]) -> Any:
    if not done.stdout.strip():
        output = _end(done.stderr, redact)
        message = f"; it said: {output}" if output else ""
        raise errors.ToolOutputError(f"command {name!r} wrote nothing to stdout, where JSON was expected{message}")
    try:
        return parse_json(done.stdout)
    except ValueError as error:
        begins = redact(done.stdout[:_LONGEST_LOOK].decode("utf-8", "replace"))[:_LONGEST_QUOTE]
        msg = f"command {name!r} did not write JSON to stdout: {error}. It begins: {begins!r}"
        raise errors.ToolOutputError(msg) from error


def _guess_content(stdout: bytes, json_type: str) -> tuple[Any, str]:
    """Parse an object or an array; other output is text, or bytes if it cannot be decoded."""
    if stdout.lstrip()[:1] in (b"{", b"["):
        try:
            return parse_json(stdout), json_type
        except ValueError:
            pass
    try:
        stdout.decode()
    except UnicodeDecodeError:
        return stdout, _OCTETS
    return _decode_output(stdout), json_type


def _decode_output(stdout: bytes) -> str:
    """Decode output without its last line ending."""
    return stdout.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
