"""Turns whatever a tool raised into the error tree."""

from __future__ import annotations

from toolpost.contracts.errors import ToolConnectionError, ToolError, ToolExecutionError, ToolTimeoutError


def failure_of(raised: BaseException, tool_name: str) -> ToolError:
    """The error that stands for an exception; it names the type, because the message alone often says nothing."""
    if isinstance(raised, ToolError):
        raised.tool_name = raised.tool_name or tool_name
        return raised
    message = f"{type(raised).__name__}: {str(raised) or 'no message'}"
    if isinstance(raised, TimeoutError):
        return ToolTimeoutError(message, tool_name=tool_name, cause=raised)
    if isinstance(raised, ConnectionError):
        return ToolConnectionError(message, tool_name=tool_name, cause=raised)
    return ToolExecutionError(message, tool_name=tool_name, cause=raised)
