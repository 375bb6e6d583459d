"""Errors as problem details (RFC 9457): status, code, cause and next action."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from toolpost.contracts import errors
from toolpost.contracts.errors import PendingNotFoundError, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Status by class; the nearest base class applies. 400 is for errors of the tool itself.
_STATUSES: Mapping[type, int] = {
    errors.PendingNotFoundError: 404,
    errors.ToolNotFoundError: 404,
    errors.ToolPermissionError: 403,
    errors.ToolConflictError: 409,
    errors.ToolCancelledError: 409,
    errors.ToolValidationError: 422,
    errors.ToolOutputError: 502,
    errors.ToolRateLimitError: 429,
    errors.StoreError: 503,
    errors.ToolTimeoutError: 504,
    errors.ConfigError: 422,
    errors.ToolAuthError: 422,
    errors.ToolSourceDownError: 503,
    errors.ToolCircuitOpenError: 503,
    errors.ToolNodeError: 502,
    errors.ToolConnectionError: 502,
    errors.ToolServerError: 502,
    errors.ToolClientError: 400,
    errors.ToolExecutionError: 500,
    errors.ToolError: 400,
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


def problem_of(error: ToolError, **facts: Any) -> ProblemResponse:
    """Return the problem details of an error, with more members if given."""
    status = next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)
    if error.error_code == _INTERRUPTED:
        status = 503
    after = error.retry_after_s
    headers = None if after is None else {"Retry-After": str(max(1, round(after)))}
    message = f"{error.message} {LIST_PENDING}." if isinstance(error, PendingNotFoundError) else error.message
    return ProblemResponse(status, error.error_code, message, headers=headers, **facts)
