"""Errors of a session: replace messages that cannot be accepted, convert failures to ToolErrors.

A message is one line, on a pipe as in an event stream. A line over the limit is replaced by an error with the id
of its request: dropping the line would leave that call waiting, closing the stream would fail every other call.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import anyio
from mcp import MCPError

from toolpost.contracts.errors import (
    ErrorCategory,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolServerError,
    ToolTimeoutError,
    from_status,
)
from toolpost.processes.line_splitter import EDGE_BYTES, LineSplitter
from toolpost.schema.json_values import is_object

# Key in an error's data for facts that only the transport knows. It is random, so that no server can forge
# "never sent" and have a call run again.
FACTS_KEY = f"toolpost-{secrets.token_hex(16)}"
_HEAD = re.compile(
    rb'^(?:data: ?)?\s*\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})'
)
_TAIL = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"[^"]*"\s*)?\}\s*$')

_TIMED_OUT = -32001
_CLIENT_FAULTS = frozenset({-32600, -32601, -32602, -32700})


def split_messages(limit: int, *, universal: bool = False) -> LineSplitter:
    """Return a line splitter that replaces a message over the limit by an error with the id of its request."""
    return LineSplitter(limit, replace_long=partial(_too_long_error, limit), universal=universal)


def _too_long_error(limit: int, head: bytes, tail: bytes, size: int) -> bytes:
    """Build an error with the id of a message over the limit; return nothing when the id cannot be found."""
    request_id = _find_id(head, tail)
    if request_id is None:
        return b""
    prefix = b"data: " if head.startswith(b"data:") else b""
    return prefix + build_error(request_id, *describe_too_long(size, limit))


def unreadable_error(message: bytes) -> bytes | None:
    """Build an error in place of a response that cannot be parsed; None when it has no id."""
    request_id = _find_id(message[:EDGE_BYTES], message[-EDGE_BYTES:])
    if request_id is None:
        return None
    text = f"the server's answer of {len(message)} bytes cannot be read: no JSON-RPC 2.0, or nested too deeply"
    return build_error(request_id, text, {"kind": "unreadable"})


def _find_id(head: bytes, tail: bytes) -> int | str | None:
    """Find the id of a response in its first and last bytes."""
    match = _HEAD.search(head) or _TAIL.search(tail)
    try:
        return None if match is None else json.loads(match[1])
    except ValueError:
        return None


def describe_too_long(size: int, limit: int) -> tuple[str, dict[str, Any]]:
    """Return the error text and facts for a message over the limit."""
    text = f"the server's answer has {size} bytes, more than the {limit} that mcp.max_message_bytes allows"
    return text, {"kind": "too_long", "size": size, "limit": limit}


def too_many_values_error(message: bytes, reason: str) -> bytes | None:
    """Build an error in place of a response that must not be decoded; None when it has no id."""
    request_id = _find_id(message[:EDGE_BYTES], message[-EDGE_BYTES:])
    return None if request_id is None else build_error(request_id, reason, {"kind": "too_long"})


def build_error(request_id: Any, text: str, facts: dict[str, Any]) -> bytes:
    """Build a JSON-RPC error that the waiting request receives in place of a response."""
    error = {"code": -32000, "message": text, "data": {FACTS_KEY: facts}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


def to_tool_error(raised: BaseException) -> ToolError:
    """Convert any exception of a session to a ToolError."""
    if isinstance(raised, ToolError):
        copied = raised.copied()  # raised from the original, an error would be its own cause
        copied.__cause__ = raised
        return copied
    if isinstance(raised, MCPError):
        return _from_rpc_error(raised)
    if isinstance(raised, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = cast("Any", raised).exceptions
        return to_tool_error(inner[0])
    if isinstance(raised, TimeoutError):
        return ToolTimeoutError(f"the MCP server did not answer in time: {_text(raised)}", cause=raised)
    if isinstance(raised, (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)):
        return ToolConnectionError(f"MCP connection failed: {_text(raised)}", cause=raised)
    cause, context = raised.__cause__, raised.__context__
    if cause is None and context is not None and str(context) == str(raised):  # the client raised the same error again
        cause = context.__cause__
    if cause is None:
        return ToolNodeError(f"MCP error: {_text(raised)}", cause=raised)
    return to_tool_error(cause)


def _from_rpc_error(raised: MCPError) -> ToolError:
    """Convert a JSON-RPC error by the transport's own facts first and the code second, never by its text."""
    code, text = raised.error.code, raised.error.message
    data: Any = raised.error.data
    facts: Mapping[str, Any] = data.get(FACTS_KEY, {}) if is_object(data) else {}
    match facts.get("kind"):
        case "too_long":
            return ToolClientError(f"MCP tool error: {text}", cause=raised, code="message_too_large")
        case "refused":
            error = from_status(facts["status"], f"MCP server: {text}", raised)
            error.retry_after_s = facts.get("retry_after_s")
            error.challenges = (facts["challenge"],) if facts.get("challenge") else ()
            return error
        case _:
            return _from_code(code, text, raised)


def _from_code(code: int, text: str, cause: BaseException) -> ToolError:
    if code == _TIMED_OUT:
        return ToolTimeoutError(f"the MCP server did not answer in time: {text}", cause=cause)
    if code in _CLIENT_FAULTS:
        return ToolClientError(f"MCP tool error: {text}", cause=cause)
    if code == -32603:
        return ToolServerError(f"MCP server error: {text}", cause=cause, category=ErrorCategory.UNKNOWN)
    return ToolClientError(f"MCP tool error: {text}", cause=cause)


def _text(raised: BaseException) -> str:
    return f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__
