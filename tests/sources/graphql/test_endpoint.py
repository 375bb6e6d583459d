"""What servers answer, right and wrong, through the front door."""

from typing import Any

import pytest

from tests.sources.graphql.serving import Canned, rough, source, toolbox
from toolpost import Failed
from toolpost.errors import ToolAuthError, ToolClientError, ToolOutputError, ToolRateLimitError, ToolServerError

SDL = """
type Query { user(id: ID): User, must: User!, count: Int }
type User { id: ID!, name: String, age: Int }
type Mutation { rename(name: String): User }
"""
USER = {"id": "1", "name": "Ann", "age": 3}


async def called(tool: str, *answers: Canned, **options: Any) -> Any:
    given = {"retry_policy": {"max_attempts": 1}, **options}
    async with rough(SDL, *answers) as server, toolbox(source(server.address, **given)) as box:
        return await box.call(f"lib.{tool}", {})


@pytest.mark.parametrize("media_type", ["application/json", "application/graphql-response+json", "text/plain"])
async def test_answers_are_taken_under_every_name_that_servers_give_them(media_type: str) -> None:
    outcome = await called("user", Canned({"data": {"user": USER}}, media_type=media_type))
    assert outcome.content == USER


@pytest.mark.parametrize("errors", [None, [], {}, "", False], ids=str)
async def test_no_errors_are_no_failure_however_they_are_written(errors: Any) -> None:
    outcome = await called("user", Canned({"data": {"user": USER}, "errors": errors, "extensions": {"cost": 1}}))
    assert outcome.content == USER


def coded(code: str) -> dict[str, Any]:
    return {"message": "no", "extensions": {"code": code}}


@pytest.mark.parametrize("errors", [{}, {"errors": [{"message": "half of it"}]}], ids=["alone", "with errors"])
@pytest.mark.parametrize("status", [302, 404, 500])
async def test_data_with_a_status_of_failure_is_a_failure(status: int, errors: dict[str, Any]) -> None:
    outcome = await called("user", Canned({"data": {"user": USER}, **errors}, status))
    assert isinstance(outcome, Failed)


@pytest.mark.parametrize(
    ("tool", "answer", "status"),
    [
        ("user", {"errors": [coded("UNAUTHENTICATED")]}, 401),
        ("user", {"data": None, "errors": [coded("FORBIDDEN")]}, 403),
        ("rename", {"errors": [coded("UNAUTHENTICATED")]}, 401),
        ("rename", {"data": None, "errors": [coded("UNAUTHENTICATED")]}, None),
    ],
    ids=str,
)
async def test_what_is_refused_before_it_had_an_effect_has_the_status_of_a_refusal(
    tool: str, answer: dict[str, Any], status: int | None
) -> None:
    outcome = await called(tool, Canned(answer))
    assert type(outcome.error) is ToolAuthError
    assert outcome.error.status_code == status


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (coded("UNAUTHENTICATED"), 200, ToolAuthError),
        (coded("FORBIDDEN"), 200, ToolAuthError),
        (coded("access-denied"), 200, ToolAuthError),
        (coded("AUTHENTICATION_ERROR"), 200, ToolAuthError),
        ({"message": "no", "extensions": {"code": 401}}, 200, ToolAuthError),
        ({"message": "no", "extensions": {"category": "authorization"}}, 200, ToolAuthError),
        ({"message": "no", "extensions": {"exception": {"code": "PermissionDenied"}}}, 200, ToolAuthError),
        ({"message": "no", "errorType": "Unauthorized"}, 200, ToolAuthError),
        (coded("BAD_USER_INPUT"), 200, ToolClientError),
        (coded("GRAPHQL_VALIDATION_FAILED"), 400, ToolClientError),
        (coded("INTERNAL_SERVER_ERROR"), 200, ToolServerError),
        (coded("THROTTLED"), 200, ToolRateLimitError),
        ({"message": "no", "type": "RATE_LIMITED"}, 200, ToolRateLimitError),
        ({"message": "no", "extensions": {"classification": "UNAUTHORIZED"}}, 200, ToolAuthError),
        ({"message": "no"}, 200, ToolClientError),
        ({"message": "no"}, 422, ToolClientError),
        ({"message": "no"}, 500, ToolServerError),
        ({"message": "no"}, 401, ToolAuthError),
        ({"message": "no"}, 403, ToolAuthError),
    ],
    ids=str,
)
async def test_errors_without_data_fail_by_their_code_or_the_status(error: Any, status: int, kind: type) -> None:
    outcome = await called("user", Canned({"errors": [error]}, status))
    assert type(outcome.error) is kind
    assert "no" in str(outcome.error)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ("it is raining", "it is raining"),
        (["one", "two"], "one; two"),
        ({"message": "alone"}, "alone"),
        ([{"path": ["user", 0], "message": "deep"}], "user.0: deep"),
        ([{}], "no reason given"),
        ([7, None], "7; null"),
        ([{"message": {"not": "text"}, "extensions": "odd", "path": "odd"}], "no reason given"),
        ([f"e{number}" for number in range(9)], "e4; and 4 more"),
    ],
    ids=str,
)
async def test_errors_of_any_form_are_reported(errors: Any, told: str) -> None:
    outcome = await called("user", Canned({"data": None, "errors": errors}))
    assert isinstance(outcome.error, ToolClientError)
    assert told in str(outcome.error)


async def test_errors_are_reported_in_one_line_without_tricks() -> None:
    outcome = await called("user", Canned({"errors": ["\x1b[2Jgone\r\nnext " + "x" * 5000]}))
    assert "\x1b" not in str(outcome.error)
    assert "gone next" in str(outcome.error)
    assert len(str(outcome.error)) < 700


async def test_a_field_that_is_null_with_errors_is_a_failure() -> None:
    outcome = await called("user", Canned({"data": {"user": None}, "errors": ["gone"]}))
    assert "gone" in str(outcome.error)


async def test_a_mutation_with_errors_beside_its_data_is_a_failure_that_says_it_may_have_happened() -> None:
    outcome = await called("rename", Canned({"data": {"rename": USER}, "errors": ["half done"]}))
    assert isinstance(outcome.error, ToolClientError)
    assert "half done. It also returned data, so it may have taken effect" in str(outcome.error)


async def test_a_mutation_that_failed_is_not_sent_again() -> None:
    wrong = Canned({"errors": [coded("INTERNAL_SERVER_ERROR")]})
    async with rough(SDL, wrong, Canned({"data": {"rename": USER}})) as server:
        async with toolbox(source(server.address)) as box:
            outcome = await box.call("lib.rename", {"name": "Bea"})
        asked = server.asked
    assert (outcome.status, len(asked)) == ("failed", 1)


async def test_a_query_that_may_pass_is_sent_again_with_the_same_text_and_variables() -> None:
    wrong = Canned({"errors": [coded("INTERNAL_SERVER_ERROR")]})
    async with rough(SDL, wrong, Canned({"data": {"user": USER}})) as server:
        async with toolbox(source(server.address)) as box:
            outcome = await box.call("lib.user", {"id": "x"})
        first, second = server.asked
    assert outcome.content == USER
    assert first == second
    assert (first["variables"], first["operationName"]) == ({"id": "x"}, "user")
    assert first["query"] == "query user($id: ID) { user(id: $id) { id name age } }"


async def test_a_server_that_asks_to_wait_says_for_how_long() -> None:
    outcome = await called("user", Canned(b"slow down", 429, "text/plain", {"Retry-After": "7"}))
    assert isinstance(outcome.error, ToolRateLimitError)
    assert outcome.error.retry_after_seconds == 7


@pytest.mark.parametrize(
    ("purse", "wait"),
    [
        ({"currentlyAvailable": 100, "restoreRate": 50}, 8),
        ({"currentlyAvailable": 100, "restoreRate": 0}, 1),
        ({"currentlyAvailable": "100"}, 1),
        (None, 1),
    ],
    ids=str,
)
async def test_a_query_that_cost_too_much_waits_until_it_can_be_paid_for(purse: Any, wait: float) -> None:
    cost = {"requestedQueryCost": 500, "throttleStatus": purse}
    outcome = await called("user", Canned({"errors": [coded("THROTTLED")], "extensions": {"cost": cost}}))
    assert isinstance(outcome.error, ToolRateLimitError)
    assert outcome.error.retry_after_seconds == wait


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Canned(b"<html><title>Log in</title></html>", media_type="text/html"), "web page where JSON was promised"),
        (Canned(b"hello", media_type="text/plain"), "not a GraphQL answer"),
        (Canned(b"{broken"), "cannot be read"),
        (Canned(b""), "not a GraphQL answer"),
        (Canned(b"[" * 100_000), "nested too deeply"),
        (Canned([{"data": {"user": USER}}]), "not a GraphQL answer"),
        (Canned({"user": USER}), "not a GraphQL answer"),
        (Canned({"data": None}), "no 'user' in its data"),
        (Canned({"data": {}}), "no 'user' in its data"),
        (Canned({"data": ["user"]}), "no 'user' in its data"),
        (Canned({"data": {"user": "Ann"}}), "$"),
        (Canned({"data": {"user": [USER]}}), "$"),
        (Canned({"data": {"user": {**USER, "age": "three"}}}), "age"),
        (Canned({"data": {"user": {**USER, "id": None}}}), "id"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_an_answer_of_the_wrong_shape_is_reported_as_that(answer: Canned, told: str) -> None:
    outcome = await called("user", answer, outputs="strict")
    assert isinstance(outcome.error, ToolOutputError)
    assert told in str(outcome.error)


async def test_null_where_the_schema_says_never_is_reported() -> None:
    outcome = await called("must", Canned({"data": {"must": None}}))
    assert (outcome.content, len(outcome.meta["output_issues"])) == (None, 1)


async def test_a_page_with_a_status_of_failure_is_reported_by_its_title() -> None:
    outcome = await called("user", Canned(b"<html><title>Bad gateway</title></html>", 502, "text/html"))
    assert isinstance(outcome.error, ToolServerError)
    assert "Bad gateway" in str(outcome.error)


async def test_an_answer_larger_than_the_limit_is_refused() -> None:
    outcome = await called("user", Canned(b'{"data": {"user": "' + b"x" * (65 * 1024 * 1024) + b'"}}'))
    assert outcome.status == "failed"
    assert "larger than 67,108,864 bytes" in str(outcome.error)
