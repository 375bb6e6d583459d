"""Convert exceptions of MCP and UTCP libraries to errors of Toolpost."""

from __future__ import annotations

import asyncio
import re

from toolpost.contracts.errors import (
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolTimeoutError,
    from_status,
)

_STATUS_IN_TEXT = re.compile(r"(?:HTTP|status)[:\s]*(\d{3})", re.IGNORECASE)


def adapt_exception(exc: BaseException, transport: str) -> ToolError:
    """Convert an exception by its class, then by its text; CancelledError is raised again."""
    if isinstance(exc, asyncio.CancelledError):
        raise exc
    if isinstance(exc, ToolError):
        return exc
    if isinstance(exc, TimeoutError):
        return ToolTimeoutError(f"Operation timed out: {exc}", cause=exc)
    if isinstance(exc, OSError):
        return ToolConnectionError(f"Connection failed: {exc}", cause=exc)
    return adapt_mcp_error(exc) if transport == "mcp" else adapt_utcp_error(exc)


def adapt_mcp_error(exc: BaseException) -> ToolNodeError:
    """Convert an exception of an MCP client."""
    kind, text = type(exc).__name__, str(exc)
    if kind.lower() == "mcperror" or "ToolError" in kind:
        return ToolClientError(f"MCP tool error: {text}", cause=exc)
    if "ConnectionError" in kind or "connection" in text.lower():
        return ToolConnectionError(f"MCP connection failed: {text}", cause=exc)
    status = _http_status(exc, "status_code", "code")
    return from_status(status, text, exc) if status else ToolNodeError(f"MCP error: {text}", cause=exc)


def adapt_utcp_error(exc: BaseException) -> ToolNodeError:
    """Convert an exception of a UTCP client."""
    kind, text = type(exc).__name__, str(exc)
    status = _http_status(exc, "status_code", "status")
    if status is None and (match := _STATUS_IN_TEXT.search(text)):
        status = int(match[1])
    if "HttpError" in kind:
        return from_status(status, text, exc)
    if "UtcpConnectionError" in kind or "connection" in text.lower():
        return ToolConnectionError(f"UTCP connection failed: {text}", cause=exc)
    if "UtcpTimeoutError" in kind or "timeout" in text.lower():
        return ToolTimeoutError(f"UTCP timeout: {text}", cause=exc)
    return from_status(status, text, exc) if status else ToolNodeError(f"UTCP error: {text}", cause=exc)


def _http_status(exc: BaseException, *attributes: str) -> int | None:
    """Return the HTTP status of an exception; a JSON-RPC code such as -32603 is not one."""
    for attribute in attributes:
        value = getattr(exc, attribute, None)
        if isinstance(value, int) and 100 <= value <= 599:
            return value
    return None
