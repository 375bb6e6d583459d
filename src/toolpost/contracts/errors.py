"""Every error that Toolpost raises or reports, in one tree.

```
ToolError                       something about one tool or one call
├── ToolNotFoundError           no such tool; names the nearest one
├── ToolValidationError         the arguments break the input schema
├── ToolOutputError             the result breaks the output schema or is not JSON
├── ToolSchemaError             the schema itself is unusable
├── ToolValueError              a stored tool value cannot be read (also a ValueError)
├── ToolCollisionError          two tools would share a name (also a ValueError)
├── ToolPermissionError         policy, path or address said no
│   └── ToolApprovalDenied      a person said no, or nobody answered in time
├── ToolExecutionError          the tool raised something of its own
├── ToolCancelledError          the call was cancelled
├── ToolCircuitOpenError        the source's breaker is open
├── ToolConflictError           an idempotency key or an answer was used before
├── PendingNotFoundError        no such question for this person (also a KeyError)
├── StoreError                  the data folder cannot be read or written
├── ConfigError                 the configuration is wrong (also a ValueError)
└── ToolNodeError               talking to an external source failed
    ├── ToolAuthError           401, 403: credentials missing or refused
    ├── ToolTimeoutError        no answer within the deadline
    ├── ToolConnectionError     no connection, or it broke
    │   └── ToolSourceDownError the tool's whole source is down, or still connecting
    ├── ToolRateLimitError      429
    ├── ToolClientError         other 4xx, or the tool itself reports an error
    ├── ToolServerError         500 to 504
    └── MCPClientError          what MCPClient raises
        ├── MCPConnectionError      no connection, or it broke (also a ToolConnectionError)
        └── MCPToolExecutionError   the call failed: refused, timed out, or the tool reports an error
PauseSignal                     not an error: unwinds a tool that asked a person
```

A category decides about retries: the explicit one, else the one of the status, else the class's own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, cast

if TYPE_CHECKING:
    from toolpost.contracts.questions import Question


class ErrorCategory(StrEnum):
    """Categories of failures, which decide about retries; each equals its string."""

    RETRYABLE_SERVER = "retryable_server"
    RETRYABLE_RATE_LIMIT = "retryable_rate"
    NON_RETRYABLE_CLIENT = "non_retryable"
    AUTH_REQUIRED = "auth_required"
    NETWORK = "network"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


_RETRYABLE = frozenset({ErrorCategory.RETRYABLE_SERVER, ErrorCategory.RETRYABLE_RATE_LIMIT, ErrorCategory.NETWORK})


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


_JsonData: TypeAlias = "str | float | bool | list[_JsonData] | dict[str, _JsonData] | None"


def _conceal_texts(value: _JsonData, redact: Callable[[str], str]) -> _JsonData:
    """Redact the texts in JSON data."""
    match value:
        case str():
            return redact(value)
        case list():
            return [_conceal_texts(one, redact) for one in value]
        case dict():
            return {name: _conceal_texts(one, redact) for name, one in value.items()}
        case _:
            return value


class ToolError(Exception):
    """Something went wrong with one tool or one call; also written `ToolError(tool_name, message)`."""

    category: ErrorCategory = ErrorCategory.UNKNOWN
    error_code: str = "tool_error"
    origin: str = ""  # the external source whose words the message may repeat
    challenges: tuple[str, ...] = ()  # WWW-Authenticate challenges of the server (RFC 9110 section 11.6.1)
    is_trusted: bool = False  # whether the operator trusts that source
    is_repeatable: bool = True  # False where the call may have taken effect and must not run twice
    is_uncaught: bool = False  # whether the cause is an exception that the code of a tool raised and did not handle
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
        """Copy the error for one more caller, who adds facts of its own call to it; causes are not copied."""
        copied = type(self).__new__(type(self))
        copied.args = self.args
        copied.__dict__.update(self.__dict__)
        return copied

    @property
    def is_retryable(self) -> bool:
        """Whether a retry could help, if the replay class permits it; in the outcome of a call, whether it does."""
        return self.is_repeatable and self.category in _RETRYABLE

    @property
    def retry_after_seconds(self) -> float | None:
        """Return how long the server asked to wait; one second for a rate limit that did not say."""
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
    """The arguments do not fit the tool's input schema; `issues` says where."""

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
    """The tool ran, but what it returned is not JSON or breaks its output schema."""

    error_code = "output_invalid"
    prefix = "Output validation failed"


class ToolSchemaError(ToolError, ValueError):
    """A tool's schema is itself invalid, too deep, too large or points outside."""

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
    """Policy, a path rule or the network guard refused."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "permission_denied"

    def __init__(
        self, message: str, text: str | None = None, *, tool_name: str | None = None, code: str | None = None
    ) -> None:
        if text is not None:
            tool_name, message = message, text
        super().__init__(f"Permission denied: {message}", tool_name=tool_name, code=code)


class ToolApprovalDenied(ToolPermissionError):  # noqa: N818 - the word that people use for it
    """A person refused the call, or nobody answered before the question expired."""

    error_code = "approval_denied"


class ToolExecutionError(ToolError):
    """The tool's own code raised; the message names the type and what it said."""

    error_code = "tool_raised"


class ToolCancelledError(ToolError):
    """The call was cancelled before it finished."""

    category = ErrorCategory.CANCELLED
    error_code = "cancelled"


class ToolCircuitOpenError(ToolError):
    """The source failed too often; calls are refused until a probe succeeds."""

    error_code = "circuit_open"


class ToolConflictError(ToolError):
    """The same key or the same question was used for something else before."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "conflict"


class PendingNotFoundError(ToolError, KeyError):
    """There is no such question, or not for this person; the two cannot be told apart."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "pending_not_found"

    def __init__(self, pending_id: str) -> None:
        super().__init__(f"Pending action {pending_id!r} not found for this user.")


class StoreError(ToolError):
    """The data folder cannot be read or written; nothing was run without its record."""

    error_code = "store_unavailable"


class ConfigError(ToolError, ValueError):
    """The configuration is wrong; the message names the key and what would be right."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "config_invalid"


class ToolNodeError(ToolError):
    """Talking to an external tool source failed."""

    error_code = "source_failed"


class ToolAuthError(ToolNodeError):
    """Authentication is required, or was refused."""

    category = ErrorCategory.AUTH_REQUIRED
    error_code = "auth_required"


class ToolTimeoutError(ToolNodeError):
    """The tool did not answer in time: in one attempt, or in the whole call over all attempts and waits (`bound`)."""

    category = ErrorCategory.RETRYABLE_SERVER
    error_code = "timeout"
    # Of an error that was stored, too, which has no more than its class, its message and its codes.
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
    """No connection could be made, or it broke.

    `sent` says whether any of the call may have reached the other side; only a
    call that was certainly not sent may be repeated when it has effects. Where many
    calls share one connection, all that fail with it name the same `incident`.
    """

    category = ErrorCategory.NETWORK
    error_code = "connection_failed"
    incident: object | None = None
    sent: bool = True

    def __init__(self, message: str, *, sent: bool = True, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.sent = sent


class ToolSourceDownError(ToolConnectionError):
    """The source of the tool is down or still connecting; nothing was sent, and calling again later may help."""

    error_code = "source_down"

    def __init__(self, message: str, *, sent: bool = False, **facts: Any) -> None:
        super().__init__(message, sent=sent, **facts)


class ToolRateLimitError(ToolNodeError):
    """The other side asks to slow down."""

    category = ErrorCategory.RETRYABLE_RATE_LIMIT
    error_code = "rate_limited"


class ToolClientError(ToolNodeError):
    """The other side refused the request itself; trying again will not help."""

    category = ErrorCategory.NON_RETRYABLE_CLIENT
    error_code = "client_error"


class ToolServerError(ToolNodeError):
    """The other side failed; trying again may help."""

    category = ErrorCategory.RETRYABLE_SERVER
    error_code = "server_error"


class MCPClientError(ToolNodeError):
    """An MCPClient was used wrongly, or what it was asked for failed."""

    error_code = "mcp_client_failed"


class MCPConnectionError(ToolConnectionError, MCPClientError):
    """The connection of an MCPClient could not be made, or broke."""

    error_code = "mcp_connection_failed"


class MCPToolExecutionError(MCPClientError):
    """A call of an MCPClient failed; `__cause__` is the error as the rest of the library raises it."""

    error_code = "mcp_tool_failed"


class ConcealedError(Exception):
    """Replaces an exception whose text held a secret, or a chain that is too long."""


_MAX_CHAIN = 32


def conceal_chain(error: BaseException, redact: Callable[[str], str], depth: int = 0) -> None:
    """Redact the causes of an exception; one of another library that holds a secret is replaced."""
    cause, context = error.__cause__, error.__context__
    hidden = error.__suppress_context__
    if cause is not None:
        error.__cause__ = _concealed(cause, redact, depth)
    if context is not None:
        error.__context__ = error.__cause__ if context is cause else _concealed(context, redact, depth)
    error.__suppress_context__ = hidden


def _concealed(raised: BaseException, redact: Callable[[str], str], depth: int) -> BaseException:
    if depth >= _MAX_CHAIN:
        return ConcealedError("and what came before it")
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
    """Return all that a traceback would show of an exception."""
    name = type(raised).__name__
    try:
        notes: list[str] = getattr(raised, "__notes__", [])
        parts = [name, str(raised), repr(raised), *notes]
        if isinstance(raised, BaseExceptionGroup):
            inner: tuple[BaseException, ...] = cast("Any", raised).exceptions
            parts += map(_full_text, inner)
        return "\n".join(map(str, parts))
    except Exception as broken:  # noqa: BLE001 - foreign code
        return f"{name} that cannot be told: {type(broken).__name__}"


class PauseSignal(BaseException):
    """Carries a question out of a running tool; a BaseException so that no `except Exception` eats it.

    `others` has by pending id what else a stored call waits with, where several calls inside it wait.
    """

    def __init__(
        self, question: Question, *, pending_id: str | None = None, others: Mapping[str, Question] | None = None
    ) -> None:
        super().__init__(question.prompt)
        self.question = question
        self.pending_id = pending_id
        self.others: Mapping[str, Question] = others or {}


_STATUS_IN_TEXT = re.compile(r"(?:HTTP|status)[:\s]*(\d{3})", re.IGNORECASE)


def adapt_exception(exc: BaseException, transport: str) -> ToolError:
    """Convert an exception of a foreign library by its class, then its text; CancelledError is raised again."""
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


def from_status(status_code: int | None, message: str, cause: BaseException | None = None) -> ToolNodeError:
    """Build the error of an HTTP status."""
    if status_code is None:
        return ToolNodeError(message, cause=cause)
    kinds: dict[int, type[ToolNodeError]] = {429: ToolRateLimitError, 401: ToolAuthError, 403: ToolAuthError}
    kind = kinds.get(status_code)
    if kind is None and 400 <= status_code <= 504:
        kind = ToolClientError if status_code < 500 else ToolServerError
    return (kind or ToolNodeError)(message, status_code=status_code, cause=cause)


def _http_status(exc: BaseException, *attributes: str) -> int | None:
    """Return the HTTP status of an exception; JSON-RPC codes such as -32603 are none."""
    for attribute in attributes:
        value = getattr(exc, attribute, None)
        if isinstance(value, int) and 100 <= value <= 599:
            return value
    return None


_MAX_NAMES = 1000  # compared within 30 ms
_KEPT = (0.5, 0.75, 0.9)  # one wrong letter leaves a half as it is, one near an end leaves more
_AFTER_SOURCE = (".", "__")  # in names of the catalog, and in those that models take
_MAX_COMPARED = 128  # comparing is quadratic, and a longer name is no typing error


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name closest to `name`; None when none is close, or `name` is too long to compare.

    Of thousands of names only those are compared that begin or end like it. What names of one source have in common
    makes them no closer: a model would be sent to a tool that it never meant.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - for the one name in a program that is wrong

    if len(name) > _MAX_COMPARED:
        return None
    names = list(known)
    for share in _KEPT:
        if len(names) > _MAX_NAMES:
            names = _similar_edges(name, names, int(len(name) * share))
    for one in get_close_matches(name, names[:_MAX_NAMES], n=3, cutoff=cutoff):
        source = next((name[: name.index(mark) + len(mark)] for mark in _AFTER_SOURCE if mark in name), "")
        rest = len(source) if one.startswith(source) else 0
        if get_close_matches(name[rest:], [one[rest:]], cutoff=cutoff):
            return one
    return None


def _similar_edges(name: str, names: list[str], size: int) -> list[str]:
    """Return the names that begin or end with as many characters of `name`; all if there is none."""
    begin, end = name[:size], name[len(name) - size :]
    return [one for one in names if one.startswith(begin) or one.endswith(end)] or names


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the known name closest to `name`, or an empty string."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else ""
