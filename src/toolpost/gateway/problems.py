"""Errors as problem details (RFC 9457): status, code, cause and next action."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from toolpost.contracts.errors import (
    ConfigError,
    PendingNotFoundError,
    StoreError,
    ToolAuthError,
    ToolCancelledError,
    ToolCircuitOpenError,
    ToolClientError,
    ToolConflictError,
    ToolConnectionError,
    ToolError,
    ToolExecutionError,
    ToolNodeError,
    ToolNotFoundError,
    ToolOutputError,
    ToolPermissionError,
    ToolRateLimitError,
    ToolServerError,
    ToolSourceDownError,
    ToolTimeoutError,
    ToolValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# Status by class; the nearest base class applies. 400 is for errors of the tool itself.
_STATUSES: Mapping[type, int] = {
    PendingNotFoundError: 404,
    ToolNotFoundError: 404,
    ToolPermissionError: 403,
    ToolConflictError: 409,
    ToolCancelledError: 409,
    ToolValidationError: 422,
    ToolOutputError: 502,
    ToolRateLimitError: 429,
    StoreError: 503,
    ToolTimeoutError: 504,
    ConfigError: 422,
    ToolAuthError: 422,
    ToolSourceDownError: 503,
    ToolCircuitOpenError: 503,
    ToolNodeError: 502,
    ToolConnectionError: 502,
    ToolServerError: 502,
    ToolClientError: 400,
    ToolExecutionError: 500,
    ToolError: 400,
}
_INTERRUPTED = "interrupted"  # the process was killed, and calling again is safe
LIST_PENDING = "GET /api/v1/pending lists open pending actions"


class ProblemResponse(JSONResponse):
    """A response with problem details."""

    media_type = "application/problem+json"

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        title = HTTPStatus(status).phrase
        body = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail, **more}
        super().__init__(body, status, headers=headers)


class Problem(Exception):  # noqa: N818 - what RFC 9457 calls it
    """An error response to a request, raised by its handler."""

    def __init__(self, status: int, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.more = status, code, detail, more

    def response(self) -> ProblemResponse:
        """Return the response with the problem details."""
        return ProblemResponse(self.status, self.code, self.detail, **self.more)


def problem_of(error: ToolError) -> ProblemResponse:
    """Return the problem details of an error."""
    status = next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
    if error.error_code == _INTERRUPTED:
        status = 503
    after = error.retry_after_s
    headers = None if after is None else {"Retry-After": str(max(1, round(after)))}
    message = f"{error.message} {LIST_PENDING}." if isinstance(error, PendingNotFoundError) else error.message
    return ProblemResponse(status, error.error_code, message, headers=headers)
