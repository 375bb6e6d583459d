"""Exceptions of other libraries as errors of tools."""

from toolpost.contracts.errors import from_status
from toolpost.contracts.foreign_errors import adapt_exception, adapt_mcp_error, adapt_utcp_error

_from_status = from_status  # programs import it by this name

__all__ = ["adapt_exception", "adapt_mcp_error", "adapt_utcp_error"]
