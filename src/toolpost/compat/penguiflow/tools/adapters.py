"""Exceptions of other libraries as errors of tools."""

from toolpost.contracts.errors import adapt_exception, adapt_mcp_error, adapt_utcp_error, from_status

_from_status = from_status  # programs import it by this name

__all__ = ["adapt_exception", "adapt_mcp_error", "adapt_utcp_error"]
