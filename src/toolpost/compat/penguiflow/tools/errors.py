"""Errors of tools, in one tree with all of Toolpost's."""

from toolpost.contracts.errors import (
    ErrorCategory,
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)

__all__ = [
    "ErrorCategory",
    "ToolAuthError",
    "ToolClientError",
    "ToolConnectionError",
    "ToolError",
    "ToolNodeError",
    "ToolRateLimitError",
    "ToolServerError",
    "ToolTimeoutError",
]
