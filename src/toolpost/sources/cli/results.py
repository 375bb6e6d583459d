"""What a command's end means: an output, or a failure with what it said on stderr."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Literal

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError, ToolServerError
from toolpost.contracts.outcomes import NO_META
from toolpost.web.content import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from toolpost.contracts.errors import ToolError
    from toolpost.processes.commands import CommandResult

Format = Literal["auto", "json", "lines", "text", "bytes"]

_OCTETS = "application/octet-stream"
_TOLD_CHARS = 2000
_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120


def output_of(
    done: CommandResult, *, name: str, kind: Format, success_codes: Collection[int], redact: Callable[[str], str]
) -> ToolOutput:
    """What a command gave; raises when its exit code is none of success."""
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
        told = f"; it said: {said}" if said else ""
        raise ToolOutputError(f"command {name!r} wrote nothing to stdout, where JSON was expected{told}")
    try:
        return parse_json(done.stdout)
    except ValueError as error:
        begins = redact(done.stdout[:_LONGEST_LOOK].decode("utf-8", "replace"))[:_LONGEST_QUOTE]
        msg = f"command {name!r} did not write JSON to stdout: {error}. It begins: {begins!r}"
        raise ToolOutputError(msg) from error


def _guessed(stdout: bytes, json_type: str) -> tuple[Any, str]:
    """An object or an array if it is one, else text; what is no text at all stays bytes."""
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
    """Text without the end of its last line."""
    return stdout.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
