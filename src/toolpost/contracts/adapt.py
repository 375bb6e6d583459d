"""Turns exceptions of foreign libraries into the error tree, told apart by class first and text last."""

from __future__ import annotations

import asyncio
import re

from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)

_STATUS_IN_TEXT = re.compile(r"(?:HTTP|status)[:\s]*(\d{3})", re.IGNORECASE)


def adapt_exception(exc: BaseException, transport: str) -> ToolError:
    """The error that stands for `exc`; cancellation is raised again, never wrapped."""
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
    """The error that stands for an exception of an MCP client."""
    kind, text = type(exc).__name__, str(exc)
    if kind.lower() == "mcperror" or "ToolError" in kind:
        return ToolClientError(f"MCP tool error: {text}", cause=exc)
    if "ConnectionError" in kind or "connection" in text.lower():
        return ToolConnectionError(f"MCP connection failed: {text}", cause=exc)
    status = _http_status(exc, "status_code", "code")
    return from_status(status, text, exc) if status else ToolNodeError(f"MCP error: {text}", cause=exc)


def adapt_utcp_error(exc: BaseException) -> ToolNodeError:
    """The error that stands for an exception of a UTCP client."""
    kind, text = type(exc).__name__, str(exc)
    status = _http_status(exc, "status_code", "status")
    if status is None and (found := _STATUS_IN_TEXT.search(text)):
        status = int(found[1])
    if "HttpError" in kind:
        return from_status(status, text, exc)
    if "UtcpConnectionError" in kind or "connection" in text.lower():
        return ToolConnectionError(f"UTCP connection failed: {text}", cause=exc)
    if "UtcpTimeoutError" in kind or "timeout" in text.lower():
        return ToolTimeoutError(f"UTCP timeout: {text}", cause=exc)
    return from_status(status, text, exc) if status else ToolNodeError(f"UTCP error: {text}", cause=exc)


def from_status(status_code: int | None, message: str, cause: BaseException | None = None) -> ToolNodeError:
    """The error class that an HTTP status stands for."""
    if status_code is None:
        return ToolNodeError(message, cause=cause)
    kinds: dict[int, type[ToolNodeError]] = {429: ToolRateLimitError, 401: ToolAuthError, 403: ToolAuthError}
    kind = kinds.get(status_code)
    if kind is None and 400 <= status_code <= 504:
        kind = ToolClientError if status_code < 500 else ToolServerError
    return (kind or ToolNodeError)(message, status_code=status_code, cause=cause)


def _http_status(exc: BaseException, *attributes: str) -> int | None:
    """A status found on the exception; JSON-RPC codes such as -32603 are not HTTP statuses."""
    for attribute in attributes:
        value = getattr(exc, attribute, None)
        if isinstance(value, int) and 100 <= value <= 599:
            return value
    return None
