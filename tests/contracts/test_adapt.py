"""Foreign exceptions and statuses, turned into the error tree."""

import asyncio

import pytest

from toolpost.contracts.errors import (
    ErrorCategory,
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolNodeError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
    adapt_exception,
    adapt_mcp_error,
    adapt_utcp_error,
    from_status,
)


class McpError(Exception): ...


class MCPError(Exception): ...


class FastMCPToolError(Exception): ...


class ServerConnectionError(Exception): ...


class UtcpHttpError(Exception): ...


class HttpError(Exception): ...


class UtcpConnectionError(Exception): ...


class UtcpTimeoutError(Exception): ...


class ForeignError(Exception): ...


def having(error: Exception, **attributes: object) -> Exception:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.req("ERR-12")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (None, ToolNodeError),
        (302, ToolNodeError),
        (400, ToolClientError),
        (401, ToolAuthError),
        (403, ToolAuthError),
        (404, ToolClientError),
        (428, ToolClientError),
        (429, ToolRateLimitError),
        (499, ToolClientError),
        (500, ToolServerError),
        (504, ToolServerError),
        (505, ToolNodeError),
        (599, ToolNodeError),
    ],
)
def test_a_status_stands_for_an_error_class(status: int | None, kind: type[ToolNodeError]) -> None:
    cause = ForeignError("said so")

    error = from_status(status, "said so", cause)

    assert type(error) is kind
    assert (error.status_code, error.message, error.__cause__) == (status, "said so", cause)


@pytest.mark.req("ERR-09")
@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (McpError("bad input"), ToolClientError, "MCP tool error: bad input"),
        (MCPError("bad input"), ToolClientError, "MCP tool error: bad input"),
        (FastMCPToolError("it failed"), ToolClientError, "MCP tool error: it failed"),
        (ServerConnectionError("gone"), ToolConnectionError, "MCP connection failed: gone"),
        (ForeignError("Connection closed"), ToolConnectionError, "MCP connection failed: Connection closed"),
        (having(ForeignError("busy"), status_code=503), ToolServerError, "busy"),
        (having(ForeignError("who?"), code=401), ToolAuthError, "who?"),
        (having(ForeignError("slow"), status_code=429, code=500), ToolRateLimitError, "slow"),
        (ForeignError("odd"), ToolNodeError, "MCP error: odd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_mcp_error_is_told_by_its_class_then_its_text_then_its_status(
    raised: Exception, kind: type[ToolNodeError], text: str
) -> None:
    error = adapt_mcp_error(raised)

    assert (type(error), error.message) == (kind, text)
    assert error.__cause__ is raised


@pytest.mark.req("ERR-09")
@pytest.mark.parametrize("code", [-32603, -32000, 0, 99, 600, 32603, "503", None, True])
def test_a_json_rpc_code_is_not_taken_for_an_http_status(code: object) -> None:
    error = adapt_mcp_error(having(ForeignError("internal"), code=code))

    assert (type(error), error.message, error.status_code) == (ToolNodeError, "MCP error: internal", None)
    assert error.category is ErrorCategory.UNKNOWN


@pytest.mark.req("ERR-10")
@pytest.mark.parametrize(
    ("raised", "kind", "text", "status"),
    [
        (having(UtcpHttpError("no"), status_code=404), ToolClientError, "no", 404),
        (having(HttpError("no"), status=502), ToolServerError, "no", 502),
        (UtcpHttpError("HTTP 429 from the API"), ToolRateLimitError, "HTTP 429 from the API", 429),
        (UtcpHttpError("no status at all"), ToolNodeError, "no status at all", None),
        (UtcpConnectionError("gone"), ToolConnectionError, "UTCP connection failed: gone", None),
        (ForeignError("connection reset"), ToolConnectionError, "UTCP connection failed: connection reset", None),
        (UtcpTimeoutError("10 s"), ToolTimeoutError, "UTCP timeout: 10 s", None),
        (ForeignError("Timeout while reading"), ToolTimeoutError, "UTCP timeout: Timeout while reading", None),
        (ForeignError("failed with Status: 403"), ToolAuthError, "failed with Status: 403", 403),
        (having(ForeignError("failed"), status=500), ToolServerError, "failed", 500),
        (ForeignError("odd"), ToolNodeError, "UTCP error: odd", None),
    ],
    ids=lambda value: str(value) if isinstance(value, Exception) else None,
)
def test_a_utcp_error_is_told_by_its_status_its_class_and_its_text(
    raised: Exception, kind: type[ToolNodeError], text: str, status: int | None
) -> None:
    error = adapt_utcp_error(raised)

    assert (type(error), error.message, error.status_code) == (kind, text, status)
    assert error.__cause__ is raised


@pytest.mark.req("ERR-11")
@pytest.mark.parametrize("transport", ["mcp", "http", "utcp"])
@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (TimeoutError("5 s"), ToolTimeoutError, "Operation timed out: 5 s"),
        (ConnectionRefusedError("refused"), ToolConnectionError, "Connection failed: refused"),
        (OSError("no route"), ToolConnectionError, "Connection failed: no route"),
    ],
    ids=["timeout", "refused", "os"],
)
def test_what_python_itself_raises_means_the_same_on_every_transport(
    raised: Exception, kind: type[ToolNodeError], text: str, transport: str
) -> None:
    error = adapt_exception(raised, transport)

    assert (type(error), error.message) == (kind, text)
    assert error.__cause__ is raised


@pytest.mark.req("ERR-11")
def test_an_error_of_the_tree_is_returned_as_it_is() -> None:
    error = ToolRateLimitError("slow down", retry_after_s=3.0)

    assert adapt_exception(error, "mcp") is error


@pytest.mark.req("ERR-11")
def test_the_transport_decides_who_reads_the_rest() -> None:
    assert adapt_exception(ForeignError("odd"), "mcp").message == "MCP error: odd"
    assert adapt_exception(ForeignError("odd"), "http").message == "UTCP error: odd"


@pytest.mark.req("ERR-11")
def test_cancellation_is_raised_again_and_never_wrapped() -> None:
    with pytest.raises(asyncio.CancelledError):
        adapt_exception(asyncio.CancelledError(), "mcp")


@pytest.mark.parametrize(
    ("raised", "retried"),
    [
        (TimeoutError("late"), True),
        (ConnectionResetError("reset"), True),
        (OSError("no route"), True),
        (ToolServerError("busy"), True),
        (ToolClientError("wrong"), False),
        (ValueError("a bug"), False),
    ],
)
def test_what_may_be_tried_again(raised: Exception, *, retried: bool) -> None:
    assert adapt_exception(raised, "mcp").is_retryable is retried


def test_a_wish_to_stop_is_never_tried_again() -> None:
    with pytest.raises(asyncio.CancelledError):
        adapt_exception(asyncio.CancelledError(), "mcp")


@pytest.mark.parametrize(("transport", "label"), [("mcp", "MCP"), ("utcp", "UTCP"), ("http", "UTCP")])
def test_an_error_says_over_which_kind_of_transport_it_came(transport: str, label: str) -> None:
    assert str(adapt_exception(ValueError("odd"), transport)).startswith(f"{label} error")
