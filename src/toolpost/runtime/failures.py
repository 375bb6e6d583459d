"""Turns whatever a tool raised into the error tree."""

from __future__ import annotations

import errno

from toolpost.contracts.errors import ToolConnectionError, ToolError, ToolExecutionError, ToolTimeoutError

# What the operating system calls a network that failed, where it has no class of its own.
_NETWORK_ERRNOS = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}
)


def failure_of(raised: BaseException, tool_name: str) -> ToolError:
    """The error that stands for an exception; it names the type, because the message alone often says nothing."""
    if isinstance(raised, ToolError):
        raised.tool_name = raised.tool_name or tool_name
        return raised
    message = f"{type(raised).__name__}: {str(raised) or 'no message'}"
    if isinstance(raised, TimeoutError):
        return ToolTimeoutError(message, tool_name=tool_name, cause=raised)
    if isinstance(raised, ConnectionError) or (isinstance(raised, OSError) and raised.errno in _NETWORK_ERRNOS):
        return ToolConnectionError(message, tool_name=tool_name, cause=raised)
    return ToolExecutionError(message, tool_name=tool_name, cause=raised)
