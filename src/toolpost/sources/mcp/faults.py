"""Failures of MCP sessions as errors of our own tree: one meaning each, whatever class they came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
from mcp import MCPError

from toolpost.contracts.adapt import from_status
from toolpost.contracts.errors import (
    ErrorCategory,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.schema.jsontypes import is_object
from toolpost.sources.mcp.framing import TOLD

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLOSED = -32000
_TIMED_OUT = -32001
_CLIENT_FAULTS = frozenset({-32600, -32601, -32602, -32700})
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def fault_of(raised: BaseException) -> ToolError:
    """The error that stands for whatever a session raised."""
    if isinstance(raised, ToolError):
        return raised
    if isinstance(raised, MCPError):
        return _of_rpc(raised)
    if isinstance(raised, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = cast("Any", raised).exceptions
        return fault_of(inner[0])
    if isinstance(raised, httpx2.HTTPStatusError):
        status = raised.response.status_code
        told = {"status": status, "challenge": raised.response.headers.get("www-authenticate")}
        return _of_status(told, f"the server answered HTTP {status}", raised)
    if isinstance(raised, httpx2.HTTPError):
        sent = not isinstance(raised, _NOT_SENT)
        return ToolConnectionError(f"MCP connection failed: {_text(raised)}{_place(raised)}", sent=sent, cause=raised)
    if isinstance(raised, TimeoutError):
        return ToolTimeoutError(f"the MCP server did not answer in time: {_text(raised)}", cause=raised)
    if isinstance(raised, (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)):
        return ToolConnectionError(f"MCP connection failed: {_text(raised)}", cause=raised)
    cause = raised.__cause__
    return fault_of(cause) if cause is not None else ToolNodeError(f"MCP error: {_text(raised)}", cause=raised)


def _of_rpc(raised: MCPError) -> ToolError:
    """A JSON-RPC error: what the transport told first, then the code; the text decides nothing."""
    code, text = raised.error.code, raised.error.message
    data: Any = raised.error.data
    told: Mapping[str, Any] = data.get(TOLD, {}) if is_object(data) else {}
    match told.get("kind"):
        case "too_long":
            return ToolClientError(f"MCP tool error: {text}", cause=raised, code="result_too_large")
        case "broken":
            return ToolConnectionError(f"MCP connection failed: {text}", sent=bool(told["sent"]), cause=raised)
        case "refused":
            return _of_status(told, text, raised)
        case _:
            return _of_code(code, text, raised)


def _of_status(told: Mapping[str, Any], text: str, cause: BaseException) -> ToolError:
    error = from_status(told["status"], f"MCP server: {text}", cause)
    error.retry_after_s = told.get("retry_after_s")
    error.challenges = (told["challenge"],) if told.get("challenge") else ()
    return error


def _of_code(code: int, text: str, cause: BaseException) -> ToolError:
    if code == _TIMED_OUT:
        return ToolTimeoutError(f"the MCP server did not answer in time: {text}", cause=cause)
    if (code == _CLOSED and text in ("Connection closed", "")) or text.startswith("SSE stream "):
        return ToolConnectionError(f"MCP connection failed: {text or 'closed'}", cause=cause)
    if code in _CLIENT_FAULTS:
        return ToolClientError(f"MCP tool error: {text}", cause=cause)
    if code == -32603:
        return ToolServerError(f"MCP server error: {text}", cause=cause, category=ErrorCategory.UNKNOWN)
    return ToolClientError(f"MCP tool error: {text}", cause=cause)


def _place(raised: httpx2.HTTPError) -> str:
    """The address that was not reached; a query or a name in it may be secret."""
    try:
        url = raised.request.url
    except RuntimeError:  # it failed before there was a request
        return ""
    return f" ({url.copy_with(username=None, password=None, query=None, fragment=None)})"


def _text(raised: BaseException) -> str:
    return f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__
