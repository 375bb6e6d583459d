"""Every error that Toolpost raises or reports, in one tree.

```
ToolError                       a failure of one tool or one call
├── ToolNotFoundError           no such tool; names the nearest one
├── ToolValidationError         the arguments break the input schema
├── ToolOutputError             the result breaks the output schema or is not JSON
├── ToolSchemaError             the schema itself is unusable
├── ToolValueError              a stored tool value cannot be read (also a ValueError)
├── ToolCollisionError          two tools would share a name (also a ValueError)
├── ToolPermissionError         denied by policy, path rules or the network guard
│   └── ToolApprovalDenied      an approver denied the call, or no one answered in time
├── ToolExecutionError          the code of the tool raised an exception
├── ToolCancelledError          the call was cancelled
├── ToolCircuitOpenError        the source's breaker is open
├── ToolConflictError           an idempotency key or an answer was used before
├── PendingNotFoundError        no such pending action for this person (also a KeyError)
├── StoreError                  the data folder cannot be read or written
│   └── TakenOverError          another process has taken over the call, because this one lost its lease
├── ConfigError                 the configuration is invalid (also a ValueError)
└── ToolNodeError               communication with an external source failed
    ├── ToolAuthError           401, 403: credentials missing or refused
    ├── ToolTimeoutError        no response within the deadline
    ├── ToolConnectionError     no connection, or it broke
    │   └── ToolSourceDownError the tool's whole source is down, or still connecting
    ├── ToolRateLimitError      429
    ├── ToolClientError         other 4xx, or the tool itself reports an error
    ├── ToolServerError         500 to 504
    └── MCPClientError          errors of MCPClient
        ├── MCPConnectionError      no connection, or it broke (also a ToolConnectionError)
        └── MCPToolExecutionError   the call failed: refused, timed out, or the tool reports an error
PauseSignal                     not an error: unwinds a tool that needs an answer
```

A category decides about retries: the explicit one, else that of the status, else that of the class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, cast

if TYPE_CHECKING:
    from toolpost.contracts.questions import Question

_MAX_CHAIN = 32
_JsonData: TypeAlias = "str | float | bool | list[_JsonData] | dict[str, _JsonData] | None"


class ErrorCategory(StrEnum):
    """Categories of failures, which decide about retries; each equals its string."""

    RETRYABLE_SERVER = "retryable_server"
    RETRYABLE_RATE_LIMIT = "retryable_rate"
    NON_RETRYABLE_CLIENT = "non_retryable"
    AUTH_REQUIRED = "auth_required"
    NETWORK = "network"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def is_retryable(self) -> bool:
        """Whether a retry could help."""
        return self in (self.RETRYABLE_SERVER, self.RETRYABLE_RATE_LIMIT, self.NETWORK)


class ToolError(Exception):
    """A failure of one tool or one call; also written `ToolError(tool_name, message)`."""

    category: ErrorCategory = ErrorCategory.UNKNOWN
    error_code: str = "tool_error"
    origin: str = ""  # the external source whose content the message may contain
    challenges: tuple[str, ...] = ()  # WWW-Authenticate challenges of the server (RFC 9110 section 11.6.1)
    is_trusted: bool = False  # whether the operator trusts that source
    is_repeatable: bool = True  # False if the call may have taken effect and must not run twice
    is_uncaught: bool = False  # whether the cause is an uncaught exception of the tool's code
    server_meta: Mapping[str, Any] = MappingProxyType({})  # the `_meta` of an MCP server's result that is an error
    traceback: str = ""  # of that exception, redacted; for the log and the operator, never for a model or a caller

    def __init__(
        self,
        message: str,
        text: str | None = None,
        *,
        tool_name: str | None = None,
        category: ErrorCategory | None = None,
        status_code: int | None = None,
        cause: BaseException | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        if text is not None:
            tool_name, message = message, text
        super().__init__(message)
        self.message = message
        self.tool_name = tool_name
        self.status_code = status_code
        self.retry_after_s = retry_after_s
        if category is not None:
            self.category = category
        elif status_code is not None:
            self.category = infer_category(status_code)
        if code is not None:
            self.error_code = code
        if cause is not None:
            self.__cause__ = cause

    def __str__(self) -> str:
        return self.message

    def copied(self) -> Self:
        """Copy the error for another caller, which adds the facts of its call; causes are not copied."""
        copied = type(self).__new__(type(self))
        copied.args = self.args
        copied.__dict__.update(self.__dict__)
        return copied

    @property
    def is_retryable(self) -> bool:
        """Whether a retry could help; in the outcome of a call, whether the replay class permits one, too."""
        return self.is_repeatable and self.category.is_retryable

    @property
    def retry_after_seconds(self) -> float | None:
        """Return the seconds to wait that the server requested; one for a rate limit without a time."""
        if self.retry_after_s is not None:
            return self.retry_after_s
        return 1.0 if self.category is ErrorCategory.RETRYABLE_RATE_LIMIT else None

    def conceal(self, redact: Callable[[str], str]) -> None:
        """Redact the message, and the exceptions that caused the error."""
        self.message = redact(self.message)
        self.args = (self.message,)
        if self.server_meta:
            self.server_meta = {name: _conceal_texts(value, redact) for name, value in self.server_meta.items()}
        conceal_chain(self, redact)

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as JSON data, for an event, a model or a surface."""
        return {
            "type": type(self).__name__,
            "message": self.message,
            "error_code": self.error_code,
            "tool_name": self.tool_name,
            "status_code": self.status_code,
            "category": self.category.value,
            "is_retryable": self.is_retryable,
            "retry_after_seconds": self.retry_after_seconds,
        }


class ToolNotFoundError(ToolError):
    """No tool has this name."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "tool_not_found"

    def __init__(self, tool_name: str, *, suggestion: str | None = None) -> None:
        hint = f' Did you mean "{suggestion}"?' if suggestion else ""
        stop = "." if suggestion else ""
        super().__init__(f'Tool "{tool_name}" not found{stop}{hint}', tool_name=tool_name)
        self.suggestion = suggestion


class ToolValidationError(ToolError):
    """The arguments violate the input schema of the tool; `issues` lists the violations."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "validation_failed"
    prefix: ClassVar[str] = "Parameter validation failed"

    def __init__(self, issues: Sequence[str] | str = (), *, tool_name: str | None = None) -> None:
        self.issues = [issues] if isinstance(issues, str) else list(issues)
        detail = f": {'; '.join(self.issues)}" if self.issues else ""
        super().__init__(f"{self.prefix}{detail}", tool_name=tool_name)

    def conceal(self, redact: Callable[[str], str]) -> None:
        """Redact the message, its causes and each issue."""
        super().conceal(redact)
        self.issues = [redact(issue) for issue in self.issues]

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as JSON data, with a list of the issues."""
        return {**super().to_dict(), "issues": self.issues}


class ToolOutputError(ToolValidationError):
    """The tool ran, but its result is not JSON or violates its output schema."""

    error_code = "output_invalid"
    prefix = "Output validation failed"


class ToolSchemaError(ToolError, ValueError):
    """The schema of a tool is invalid, too deep, too large or has external references."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "schema_invalid"


class ToolValueError(ToolError, ValueError):
    """A stored tool value cannot be read; the message names the row and the field."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "tool_value_invalid"


class ToolCollisionError(ToolError, ValueError):
    """Two tools would have the same name."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "name_collision"


class ToolPermissionError(ToolError):
    """The policy, a path rule or the network guard denied the call."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "permission_denied"

    def __init__(
        self, message: str, text: str | None = None, *, tool_name: str | None = None, code: str | None = None
    ) -> None:
        if text is not None:
            tool_name, message = message, text
        super().__init__(f"Permission denied: {message}", tool_name=tool_name, code=code)


class ToolApprovalDenied(ToolPermissionError):  # noqa: N818 - the usual word
    """An approver denied the call, or no one answered before the question expired."""

    error_code = "approval_denied"


class ToolExecutionError(ToolError):
    """The code of the tool raised an exception; the message contains its type and its message."""

    error_code = "tool_raised"


class ToolCancelledError(ToolError):
    """The call was cancelled before it finished."""

    category = ErrorCategory.CANCELLED
    error_code = "cancelled"


class ToolCircuitOpenError(ToolError):
    """The source failed too often; calls are refused until a probe succeeds."""

    error_code = "circuit_open"


class ToolConflictError(ToolError):
    """An idempotency key or a question was used before, for another call or answer."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "conflict"


class PendingNotFoundError(ToolError, KeyError):
    """A pending action does not exist or is not visible to this person.

    The error is identical in both cases and does not reveal whether the id exists.
    """

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "pending_not_found"

    def __init__(self, pending_id: str) -> None:
        super().__init__(f"Pending action {pending_id!r} not found for this user.")


class StoreError(ToolError):
    """The data folder cannot be read or written; nothing runs without its record."""

    error_code = "store_unavailable"


class TakenOverError(StoreError):
    """This process lost its lease, and others have taken over its calls: they carry them out, so it must not retry."""

    error_code = "taken_over"


class ConfigError(ToolError, ValueError):
    """The configuration is invalid; the message contains the key and a valid value."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "config_invalid"


class ToolNodeError(ToolError):
    """The communication with an external tool source failed."""

    error_code = "source_failed"


class ToolAuthError(ToolNodeError):
    """Authentication is required, or the server rejected the credentials."""

    category = ErrorCategory.AUTH_REQUIRED
    error_code = "auth_required"


class ToolTimeoutError(ToolNodeError):
    """The tool did not respond in time: in one attempt, or in the call with all its attempts (`bound`)."""

    category = ErrorCategory.RETRYABLE_SERVER
    error_code = "timeout"
    # Defaults for an error that was stored: only its class, its message and its codes are.
    timeout_ms: float | None = None
    bound: Literal["attempt", "call"] | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        timeout_ms: float | None = None,
        bound: Literal["attempt", "call"] | None = None,
        **facts: Any,
    ) -> None:
        default = f"Tool execution timed out after {timeout_ms:g}ms" if timeout_ms is not None else "Tool timed out"
        super().__init__(message or default, **facts)
        self.timeout_ms = timeout_ms
        self.bound = bound


class ToolConnectionError(ToolNodeError):
    """The connection could not be opened, or it broke.

    `sent` is whether any part of the call may have reached the server; a call with effects is retried only if it was
    certainly not sent. If many calls share a connection, all that fail with it have the same `incident`.
    """

    category = ErrorCategory.NETWORK
    error_code = "connection_failed"
    incident: object | None = None
    sent: bool = True

    def __init__(self, message: str, *, sent: bool = True, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.sent = sent


class ToolSourceDownError(ToolConnectionError):
    """The source of the tool is down or still connecting; nothing was sent, and a later call may succeed."""

    error_code = "source_down"

    def __init__(self, message: str, *, sent: bool = False, **facts: Any) -> None:
        super().__init__(message, sent=sent, **facts)


class ToolRateLimitError(ToolNodeError):
    """The server limits the rate of requests."""

    category = ErrorCategory.RETRYABLE_RATE_LIMIT
    error_code = "rate_limited"


class ToolClientError(ToolNodeError):
    """The server rejected the request; a retry will not help."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "client_error"


class ToolServerError(ToolNodeError):
    """The server failed; a retry may help."""

    category = ErrorCategory.RETRYABLE_SERVER
    error_code = "server_error"


class MCPClientError(ToolNodeError):
    """An MCPClient was used incorrectly, or its request failed."""

    error_code = "mcp_client_failed"


class MCPConnectionError(ToolConnectionError, MCPClientError):
    """The connection of an MCPClient could not be opened, or broke."""

    error_code = "mcp_connection_failed"


class MCPToolExecutionError(MCPClientError):
    """A call of an MCPClient failed; `__cause__` is the error as the rest of the library raises it."""

    error_code = "mcp_tool_failed"


class PauseSignal(BaseException):
    """Carries a question out of a running tool; a BaseException, which `except Exception` does not catch.

    `others` contains further questions by pending id, if several nested calls wait.
    """

    def __init__(
        self, question: Question, *, pending_id: str | None = None, others: Mapping[str, Question] | None = None
    ) -> None:
        super().__init__(question.prompt)
        self.question = question
        self.pending_id = pending_id
        self.others: Mapping[str, Question] = others or {}


def infer_category(status_code: int | None) -> ErrorCategory:
    """Return the category of an HTTP status."""
    match status_code:
        case None:
            return ErrorCategory.UNKNOWN
        case 429:
            return ErrorCategory.RETRYABLE_RATE_LIMIT
        case 401 | 403:
            return ErrorCategory.AUTH_REQUIRED
        case code if 500 <= code <= 504:
            return ErrorCategory.RETRYABLE_SERVER
        case code if 400 <= code < 500:
            return ErrorCategory.NON_RETRYABLE_CLIENT
        case _:
            return ErrorCategory.UNKNOWN


def from_status(status_code: int | None, message: str, cause: BaseException | None = None) -> ToolNodeError:
    """Build the error of an HTTP status."""
    if status_code is None:
        return ToolNodeError(message, cause=cause)
    kinds: dict[int, type[ToolNodeError]] = {429: ToolRateLimitError, 401: ToolAuthError, 403: ToolAuthError}
    kind = kinds.get(status_code)
    if kind is None and 400 <= status_code <= 504:
        kind = ToolClientError if status_code < 500 else ToolServerError
    return (kind or ToolNodeError)(message, status_code=status_code, cause=cause)


class ConcealedError(Exception):
    """Replacement of an exception with a secret in its text, or of a chain that is too long."""


def conceal_chain(error: BaseException, redact: Callable[[str], str], depth: int = 0) -> None:
    """Redact the causes of an exception; a foreign exception that contains a secret is replaced."""
    cause, context = error.__cause__, error.__context__
    hidden = error.__suppress_context__
    if cause is not None:
        error.__cause__ = _concealed(cause, redact, depth)
    if context is not None:
        error.__context__ = error.__cause__ if context is cause else _concealed(context, redact, depth)
    error.__suppress_context__ = hidden


def _concealed(raised: BaseException, redact: Callable[[str], str], depth: int) -> BaseException:
    if depth >= _MAX_CHAIN:
        return ConcealedError("and earlier exceptions")
    if isinstance(raised, ToolError):
        raised.message = redact(raised.message)
        raised.args = (raised.message,)
        shown: BaseException = raised
    else:
        text = _full_text(raised)
        redacted = redact(text)
        shown = raised if redacted == text else ConcealedError(redacted).with_traceback(raised.__traceback__)
    if shown is not raised:
        shown.__cause__, shown.__context__ = raised.__cause__, raised.__context__
        shown.__suppress_context__ = raised.__suppress_context__
    conceal_chain(shown, redact, depth + 1)
    return shown


def _full_text(raised: BaseException) -> str:
    name = type(raised).__name__
    try:
        notes: list[str] = getattr(raised, "__notes__", [])
        parts = [name, str(raised), repr(raised), *notes]
        if isinstance(raised, BaseExceptionGroup):
            inner: tuple[BaseException, ...] = cast("Any", raised).exceptions
            parts += map(_full_text, inner)
        return "\n".join(map(str, parts))
    except Exception as broken:  # noqa: BLE001 - foreign code
        return f"{name} without a readable text: {type(broken).__name__}"


def _conceal_texts(value: _JsonData, redact: Callable[[str], str]) -> _JsonData:
    match value:
        case str():
            return redact(value)
        case list():
            return [_conceal_texts(one, redact) for one in value]
        case dict():
            return {name: _conceal_texts(one, redact) for name, one in value.items()}
        case _:
            return value
