"""The error tree: what an error says, how it is categorised, and whether trying again could help."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from toolpost.contracts import errors
from toolpost.contracts.errors import (
    ConfigError,
    ErrorCategory,
    PauseSignal,
    PendingNotFoundError,
    ToolApprovalDenied,
    ToolAuthError,
    ToolCancelledError,
    ToolClientError,
    ToolCollisionError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolNotFoundError,
    ToolOutputError,
    ToolPermissionError,
    ToolRateLimitError,
    ToolSchemaError,
    ToolServerError,
    ToolTimeoutError,
    ToolValidationError,
    from_status,
    infer_category,
)
from toolpost.contracts.foreign_errors import adapt_exception, adapt_mcp_error, adapt_utcp_error
from toolpost.contracts.nearest_names import did_you_mean, nearest
from toolpost.contracts.questions import Question


def tree(root: type[ToolError] = ToolError) -> Iterator[type[ToolError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


@pytest.mark.req("ERR-01")
def test_the_categories_have_their_names() -> None:
    assert {member.name: member.value for member in ErrorCategory} == {
        "RETRYABLE_SERVER": "retryable_server",
        "RETRYABLE_RATE_LIMIT": "retryable_rate",
        "NON_RETRYABLE_CLIENT": "non_retryable",
        "AUTH_REQUIRED": "auth_required",
        "NETWORK": "network",
        "CANCELLED": "cancelled",
        "UNKNOWN": "unknown",
    }


@pytest.mark.req("ERR-01", "ERR-03")
@pytest.mark.parametrize(
    ("status", "category"),
    [
        (None, ErrorCategory.UNKNOWN),
        (200, ErrorCategory.UNKNOWN),
        (302, ErrorCategory.UNKNOWN),
        (399, ErrorCategory.UNKNOWN),
        (400, ErrorCategory.NON_RETRYABLE_CLIENT),
        (401, ErrorCategory.AUTH_REQUIRED),
        (402, ErrorCategory.NON_RETRYABLE_CLIENT),
        (403, ErrorCategory.AUTH_REQUIRED),
        (404, ErrorCategory.NON_RETRYABLE_CLIENT),
        (428, ErrorCategory.NON_RETRYABLE_CLIENT),
        (429, ErrorCategory.RETRYABLE_RATE_LIMIT),
        (430, ErrorCategory.NON_RETRYABLE_CLIENT),
        (499, ErrorCategory.NON_RETRYABLE_CLIENT),
        (500, ErrorCategory.RETRYABLE_SERVER),
        (504, ErrorCategory.RETRYABLE_SERVER),
        (505, ErrorCategory.UNKNOWN),
        (599, ErrorCategory.UNKNOWN),
    ],
)
def test_a_status_stands_for_a_category(status: int | None, category: ErrorCategory) -> None:
    assert infer_category(status) is category


@pytest.mark.req("ERR-02", "ERR-13")
def test_an_error_carries_its_tool_its_status_and_its_cause() -> None:
    cause = OSError("gone")

    error = ToolNodeError("it broke", tool_name="gh.issue", status_code=502, cause=cause)

    assert (str(error), error.tool_name, error.status_code) == ("it broke", "gh.issue", 502)
    assert error.category is ErrorCategory.RETRYABLE_SERVER
    assert error.__cause__ is cause
    assert isinstance(error, ToolError)


@pytest.mark.req("ERR-02", "ERR-04", "DEF-01")
def test_an_explicit_category_wins_over_the_status_and_the_status_over_the_class() -> None:
    explicit = ToolTimeoutError("slow", status_code=404, category=ErrorCategory.CANCELLED)
    by_status = ToolTimeoutError("slow", status_code=404)
    by_class = ToolTimeoutError("slow")

    assert explicit.category is ErrorCategory.CANCELLED
    assert by_status.category is ErrorCategory.NON_RETRYABLE_CLIENT
    assert by_class.category is ErrorCategory.RETRYABLE_SERVER


@pytest.mark.req("ERR-04", "ERR-08", "DEF-01")
@pytest.mark.parametrize(
    ("kind", "category", "retryable"),
    [
        (ToolAuthError, ErrorCategory.AUTH_REQUIRED, False),
        (ToolTimeoutError, ErrorCategory.RETRYABLE_SERVER, True),
        (ToolConnectionError, ErrorCategory.NETWORK, True),
        (ToolRateLimitError, ErrorCategory.RETRYABLE_RATE_LIMIT, True),
        (ToolClientError, ErrorCategory.NON_RETRYABLE_CLIENT, False),
        (ToolServerError, ErrorCategory.RETRYABLE_SERVER, True),
        (ToolNodeError, ErrorCategory.UNKNOWN, False),
    ],
)
def test_the_category_of_a_class_holds_without_a_status(
    kind: type[ToolNodeError], category: ErrorCategory, retryable: bool
) -> None:
    error = kind("it failed")

    assert error.category is category
    assert error.is_retryable is retryable
    assert isinstance(error, ToolNodeError)


@pytest.mark.req("ERR-05")
def test_only_the_server_its_limits_and_the_network_are_worth_another_try() -> None:
    retryable = {category for category in ErrorCategory if ToolError("x", category=category).is_retryable}

    assert retryable == {
        ErrorCategory.RETRYABLE_SERVER,
        ErrorCategory.RETRYABLE_RATE_LIMIT,
        ErrorCategory.NETWORK,
    }


@pytest.mark.req("ERR-06")
def test_a_rate_limit_waits_a_second_unless_the_other_side_said_how_long() -> None:
    assert ToolRateLimitError("slow down").retry_after_seconds == 1.0
    assert ToolRateLimitError("slow down", retry_after_s=17.5).retry_after_seconds == 17.5
    assert ToolRateLimitError("slow down", retry_after_s=0.0).retry_after_seconds == 0.0
    assert ToolServerError("down").retry_after_seconds is None
    assert ToolServerError("down", retry_after_s=30.0).retry_after_seconds == 30.0


@pytest.mark.req("ERR-07", "ERR-19")
def test_an_error_as_plain_data_says_all_that_a_surface_needs() -> None:
    error = ToolRateLimitError("slow down", tool_name="gh.issue", status_code=429, retry_after_s=2.0)

    assert error.to_dict() == {
        "type": "ToolRateLimitError",
        "message": "slow down",
        "error_code": "rate_limited",
        "tool_name": "gh.issue",
        "status_code": 429,
        "category": "retryable_rate",
        "is_retryable": True,
        "retry_after_seconds": 2.0,
    }


@pytest.mark.req("ERR-19")
def test_every_class_has_a_stable_code_of_its_own() -> None:
    codes = {kind.__name__: kind.error_code for kind in dict.fromkeys(tree())}

    assert codes == {
        "ToolError": "tool_error",
        "ToolNotFoundError": "tool_not_found",
        "ToolValidationError": "validation_failed",
        "ToolOutputError": "output_invalid",
        "ToolSchemaError": "schema_invalid",
        "ToolValueError": "tool_value_invalid",
        "ToolCollisionError": "name_collision",
        "ToolPermissionError": "permission_denied",
        "ToolApprovalDenied": "approval_denied",
        "ToolExecutionError": "tool_raised",
        "ToolCancelledError": "cancelled",
        "ToolCircuitOpenError": "circuit_open",
        "ToolConflictError": "conflict",
        "PendingNotFoundError": "pending_not_found",
        "StoreError": "store_unavailable",
        "TakenOverError": "taken_over",
        "ConfigError": "config_invalid",
        "ToolNodeError": "source_failed",
        "ToolAuthError": "auth_required",
        "ToolTimeoutError": "timeout",
        "ToolConnectionError": "connection_failed",
        "ToolSourceDownError": "source_down",
        "ToolRateLimitError": "rate_limited",
        "ToolClientError": "client_error",
        "ToolServerError": "server_error",
        "MCPClientError": "mcp_client_failed",
        "MCPConnectionError": "mcp_connection_failed",
        "MCPToolExecutionError": "mcp_tool_failed",
    }


@pytest.mark.req("ERR-19")
def test_a_code_can_be_narrowed_for_one_error_without_touching_its_class() -> None:
    narrowed = ToolPermissionError("outside", code="path_refused")

    assert narrowed.error_code == "path_refused"
    assert ToolPermissionError("no").error_code == "permission_denied"


def test_the_tree_in_the_docstring_names_every_class() -> None:
    drawn = errors.__doc__ or ""

    assert [kind.__name__ for kind in dict.fromkeys(tree()) if f"{kind.__name__} " not in drawn] == []


@pytest.mark.req("ERR-14")
def test_a_missing_tool_is_named_with_the_one_that_was_probably_meant() -> None:
    error = ToolNotFoundError("gh.isue", suggestion="gh.issue")

    assert str(error) == 'Tool "gh.isue" not found. Did you mean "gh.issue"?'
    assert (error.tool_name, error.suggestion) == ("gh.isue", "gh.issue")


@pytest.mark.req("ERR-14")
def test_a_missing_tool_without_a_likely_neighbour_is_just_named() -> None:
    assert str(ToolNotFoundError("zebra")) == 'Tool "zebra" not found'


@pytest.mark.req("ERR-15")
def test_refused_arguments_are_reported_issue_by_issue() -> None:
    error = ToolValidationError(["$.a: expected integer", "$.b: missing"], tool_name="add")

    assert str(error) == "Parameter validation failed: $.a: expected integer; $.b: missing"
    assert error.issues == ["$.a: expected integer", "$.b: missing"]
    assert error.to_dict()["issues"] == error.issues
    assert error.is_retryable is False


@pytest.mark.req("ERR-15")
def test_refused_arguments_may_have_one_issue_or_none() -> None:
    assert ToolValidationError("$: expected object").issues == ["$: expected object"]
    assert str(ToolValidationError()) == "Parameter validation failed"


def test_a_result_that_breaks_its_schema_is_distinguished_from_refused_arguments() -> None:
    error = ToolOutputError("$: expected integer", tool_name="add")

    assert str(error) == "Output validation failed: $: expected integer"
    assert error.error_code == "output_invalid"


@pytest.mark.req("ERR-16")
@pytest.mark.parametrize(("timeout_ms", "shown"), [(30000.0, "30000ms"), (50.0, "50ms"), (0.5, "0.5ms")])
def test_a_timeout_says_after_how_long(timeout_ms: float, shown: str) -> None:
    error = ToolTimeoutError(timeout_ms=timeout_ms, tool_name="slow")

    assert str(error) == f"Tool execution timed out after {shown}"
    assert (error.timeout_ms, error.tool_name) == (timeout_ms, "slow")


@pytest.mark.req("ERR-16")
def test_a_timeout_of_unknown_length_still_says_what_it_is() -> None:
    assert str(ToolTimeoutError()) == "Tool timed out"


def test_a_category_equals_its_string() -> None:
    assert [each for each in ErrorCategory if each != each.value] == []
    assert f"{ErrorCategory.NETWORK}" == "network"


@pytest.mark.parametrize("kind", [ToolError, ToolNodeError, ToolPermissionError])
def test_the_tool_may_be_named_before_the_message(kind: type[ToolError]) -> None:
    error = kind("read_file", "no such file")

    assert error.tool_name == "read_file"
    assert str(error).endswith("no such file")


@pytest.mark.req("ERR-17")
def test_a_refusal_says_that_permission_was_denied() -> None:
    error = ToolPermissionError("'rm' is not allowed", tool_name="rm")

    assert str(error) == "Permission denied: 'rm' is not allowed"
    assert isinstance(ToolApprovalDenied("ann said no"), ToolPermissionError)


def test_a_broken_connection_may_have_been_sent_unless_someone_knows_better() -> None:
    assert ToolConnectionError("reset").sent is True
    assert ToolConnectionError("refused", sent=False).sent is False


def test_a_cancelled_call_is_not_tried_again() -> None:
    error = ToolCancelledError("stopped")

    assert error.category is ErrorCategory.CANCELLED
    assert error.is_retryable is False


def test_mistakes_of_the_programmer_are_value_errors_too() -> None:
    assert all(issubclass(kind, ValueError) for kind in (ToolCollisionError, ToolSchemaError, ConfigError))


def test_an_unknown_question_is_a_key_error_whose_text_is_readable() -> None:
    error = PendingNotFoundError("ask_1")

    assert isinstance(error, KeyError)
    assert str(error).startswith("Pending action 'ask_1' not found for this user.")


@pytest.mark.parametrize("kind", list(dict.fromkeys(tree())), ids=lambda kind: kind.__name__)
def test_every_error_can_be_reported_as_json(kind: type[ToolError]) -> None:
    told = json.loads(json.dumps(kind("what happened").to_dict()))

    assert told["type"] == kind.__name__
    assert told["error_code"] == kind.error_code
    assert "what happened" in told["message"]


def test_a_pause_passes_through_code_that_catches_exceptions() -> None:
    signal = PauseSignal(Question(kind="input", prompt="Which one?"), pending_id="ask_1")

    assert not isinstance(signal, Exception)
    assert (str(signal), signal.pending_id, signal.question.kind) == ("Which one?", "ask_1", "input")


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
def test_an_mcp_error_is_reported_by_its_class_then_its_text_then_its_status(
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
def test_a_utcp_error_is_reported_by_its_status_its_class_and_its_text(
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


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("gh.isue", "gh.issue"), ("issue", "gh.issue"), ("gh__issue", "gh.issue"), ("Add", "add"), ("zebra", None)],
)
def test_a_misspelled_name_is_understood(asked: str, meant: str | None) -> None:
    assert nearest(asked, ["gh.issue", "add", "file.read"]) == meant


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("lab.nope", None),
        ("lab__nope", None),
        ("lab.slo", "lab.slow"),
        ("lba.slow", "lab.slow"),
        ("lab__slo", "lab__slow"),
    ],
)
def test_names_of_one_source_are_close_only_by_what_comes_after_it(asked: str, meant: str | None) -> None:
    assert nearest(asked, ["lab.slow", "lab.ship", "lab__slow"]) == meant


def test_an_absurdly_long_name_is_not_compared_with_anything() -> None:
    assert nearest("a" * 1_000_000, ["a"]) is None


def test_the_suggestion_is_a_question_or_nothing() -> None:
    assert did_you_mean("thrid", ["first", "third"]) == "did you mean 'third'?"
    assert did_you_mean("zebra", ["first", "third"]) == ""


@pytest.mark.parametrize("slip", ["ppi.find_thing_4321", "api.fnd_thing_4321", "api.find_thing_4321_"])
def test_of_thousands_of_names_the_one_that_was_meant_is_found(slip: str) -> None:
    known = [f"api.{verb}_thing_{number}" for number in range(2000, 5000) for verb in ("find", "make")]

    assert nearest(slip, known) == "api.find_thing_4321"
