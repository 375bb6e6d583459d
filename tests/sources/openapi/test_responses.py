"""An answer becomes output by its media type, or the error that its status stands for."""

import json
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import (
    ErrorCategory,
    ToolAuthError,
    ToolClientError,
    ToolError,
    ToolNodeError,
    ToolOutputError,
    ToolRateLimitError,
    ToolServerError,
)
from toolpost.contracts.retries import RetryPolicy
from toolpost.http.content import MOST_ITEMS
from toolpost.runtime.resilience import may_repeat
from toolpost.sources.openapi.models import ApiOperation, ApiResponse, Parameter, SecurityRequirement
from toolpost.sources.openapi.responses import parse_response
from toolpost.sources.requests import PlannedRequest
from toolpost.wire.messages import Headers

NOW = 1_800_000_000.0


def query(name: str, kind: str = "string") -> Parameter:
    return Parameter(name=name, location="query", argument=f"{name}_arg", schema={"type": kind})


def answered(
    body: bytes | str = b"",
    content_type: str | None = "application/json",
    status: int = 200,
    *,
    headers: dict[str, str] | None = None,
    declared: dict[str, list[str]] | None = None,
    method: str = "get",
    parameters: tuple[Parameter, ...] = (),
    **more: Any,
) -> ToolOutput:
    answers = tuple(ApiResponse(status=key, content=dict.fromkeys(kinds)) for key, kinds in (declared or {}).items())
    operation = ApiOperation(
        tool_name="t",
        method=method,
        path="/things/{id}",
        servers=("https://h",),
        responses=answers,
        parameters=parameters,
        security=((SecurityRequirement(scheme="key"),), (SecurityRequirement(scheme="oauth"),)),
    )
    pairs = [("Content-Type", content_type)] if content_type is not None else []
    data = body.encode() if isinstance(body, str) else body
    return parse_response(operation, status, Headers((*pairs, *(headers or {}).items())), data, now=NOW, **more)


def failed(body: bytes | str = b"", content_type: str | None = None, status: int = 500, **more: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        answered(body, content_type, status, **more)
    return caught.value


@pytest.mark.parametrize(
    ("body", "content_type", "content"),
    [
        ('{"a": 1}', "application/json", {"a": 1}),
        ('{"a": "é"}', "application/vnd.api+json", {"a": "é"}),
        (b'\xef\xbb\xbf{"a": 1}', "application/json; charset=utf-8", {"a": 1}),
        ('{"a": "é"}'.encode("utf-16"), "application/json", {"a": "é"}),
        ('{"a": "é"}'.encode("latin-1"), "application/json; charset=ISO-8859-1", {"a": "é"}),
        ("null", "application/json", None),
        ("", "application/json", None),
        (b"gr\xc3\xbc\xc3\x9fe", "text/plain", "grüße"),
        (b"gr\xfc\xdfe", "text/plain", "grüße"),
        (b"gr\xfc\xdfe", 'text/plain; charset="latin1"', "grüße"),
        (b"gr\xc3\xbcn", "text/plain; charset=zip", "grün"),
        ("<p>hi</p>", "text/html", "<p>hi</p>"),
        ("<a/>", "application/atom+xml", "<a/>"),
        ("a: 1", "application/yaml", "a: 1"),
        ("a=1&b=2&b=3&c=", "application/x-www-form-urlencoded", {"a": "1", "b": ["2", "3"], "c": ""}),
        ("", "text/plain", ""),
        ('{"a":1}\n\n{"a":2}', "application/x-ndjson", [{"a": 1}, {"a": 2}]),
        ("\x1e1\n\x1e2\n", "application/json-seq", [1, 2]),
        ('{"a":1}\n{"a":2}\n', "application/json;stream=watch", [{"a": 1}, {"a": 2}]),
        ('{"pulled":1}\r\n{"pulled":2}\r\n', "application/json", [{"pulled": 1}, {"pulled": 2}]),
        ('{"a": 1}', None, {"a": 1}),
        ("just text", None, "just text"),
        ("", None, None),
    ],
)
def test_a_body_is_parsed_by_its_type(body: bytes | str, content_type: str | None, content: Any) -> None:
    assert answered(body, content_type).content == content


def test_events_are_a_list_of_what_was_said() -> None:
    first = "retry: 5\nevent: start\ndata: a\ndata: b\n\n"
    second = ': comment\nid: 7\r\ndata:{"n": 1}\r\n\r\n'
    body = f"{first}{second}event: empty\n\ndata: [DONE]"
    said = [{"event": "start", "data": "a\nb"}, {"id": "7", "data": {"n": 1}}, {"data": "[DONE]"}]
    assert answered(body, "text/event-stream").content == said


@pytest.mark.parametrize("item", ["{}\n", "data: x\n\n"])
def test_a_stream_that_is_too_long_is_cut_and_says_so(item: str) -> None:
    kind = "application/x-ndjson" if item == "{}\n" else "text/event-stream"
    output = answered(item * (MOST_ITEMS + 5), kind)
    assert len(output.content) == MOST_ITEMS
    assert (output.text or "").endswith(f"The first {MOST_ITEMS} of {MOST_ITEMS + 5} items; the others were skipped.")


@pytest.mark.parametrize(
    ("content_type", "media_type"),
    [
        ("image/png", "image/png"),
        ("application/pdf; a=b", "application/pdf"),
        ("multipart/mixed; boundary=x", "multipart/mixed; boundary=x"),
        (None, "application/octet-stream"),
    ],
)
def test_bytes_stay_bytes_with_their_type(content_type: str | None, media_type: str) -> None:
    output = answered(b"\x89PNG\0\xff", content_type)
    assert (output.content, output.media_type) == (b"\x89PNG\0\xff", media_type)


def test_an_answer_without_a_body_is_nothing_or_says_where_the_new_thing_is() -> None:
    assert answered(b"", None, 204) == ToolOutput(None, None, meta={"status": 204})
    created = answered(b"", None, 201, headers={"Location": "/things/7"})
    assert created == ToolOutput(None, "201 Created: /things/7", meta={"status": 201, "location": "/things/7"})


def test_head_tells_the_headers_and_none_that_are_secret() -> None:
    output = answered(b"", "text/plain", headers={"ETag": '"1"', "Set-Cookie": "s=1"}, method="head")
    assert output.content == {"status": 200, "headers": {"content-type": "text/plain", "etag": '"1"'}}


@pytest.mark.parametrize("status", ["200", "2XX", "2xx", "default"])
def test_a_web_page_in_place_of_json_is_an_error(status: str) -> None:
    page = "<html><title>Sign in</title>\x1b[31mPassword"
    error = failed(page, "text/html", 200, declared={status: ["application/json"]})
    assert isinstance(error, ToolOutputError)
    assert "GET /things/{id} answered 200, but the answer is unusable: it is a web page" in str(error)
    assert "Sign in" in str(error)
    assert "\x1b" not in str(error)


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "text/html", "nonsense"])
def test_json_under_another_name_is_taken_where_it_was_promised(content_type: str) -> None:
    assert answered('{"a": 1}', content_type, declared={"200": ["application/json"]}).content == {"a": 1}


def test_a_text_where_json_was_promised_stays_a_text_for_the_schema_to_judge() -> None:
    assert answered("OK", "text/plain", declared={"200": ["application/json"]}).content == "OK"
    assert answered("OK", None, declared={"200": ["text/plain"]}).content == "OK"


@pytest.mark.parametrize(
    "body", [b'{"a": 1,', b"<html>", b"NaN", b"[" * 100_000, b"\xff\xfe\xff", b'{"a": 1} trailing', b"1" * 5000]
)
def test_json_that_is_none_is_an_error_that_shows_how_it_begins(body: bytes) -> None:
    error = failed(body, "application/json", 200)
    assert isinstance(error, ToolOutputError)
    assert "it cannot be read as application/json: " in str(error)
    assert len(str(error)) < 600


def test_a_broken_line_is_named() -> None:
    assert "its line 2 is not JSON" in str(failed('{"a":1}\n{"a"', "application/x-ndjson", 200))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ToolClientError),
        (401, ToolAuthError),
        (403, ToolAuthError),
        (404, ToolClientError),
        (409, ToolClientError),
        (422, ToolClientError),
        (429, ToolRateLimitError),
        (500, ToolServerError),
        (503, ToolServerError),
        (507, ToolNodeError),
        (799, ToolNodeError),
    ],
)
def test_a_status_is_an_error_of_its_class(status: int, kind: type[ToolError]) -> None:
    error = failed('{"detail": "because"}', "application/json", status)
    assert (type(error), error.status_code) == (kind, status)
    assert str(error).startswith(f"GET /things/{{id}} answered {status}")
    assert "because" in str(error)


def test_a_401_names_the_schemes_and_what_the_server_asks_for() -> None:
    asks = {"WWW-Authenticate": 'Bearer realm="x", error="insufficient_scope", scope="repo:write"'}
    error = failed(b"", None, 401, headers=asks)
    assert "error: insufficient_scope, scope: repo:write" in str(error)
    assert "Check the credential for 'key' or 'oauth'." in str(error)


@pytest.mark.parametrize(
    ("body", "content_type", "told"),
    [
        ({"title": "Out of stock", "detail": "Monday."}, "application/problem+json", "Out of stock: Monday."),
        ({"title": "Out of stock"}, "application/problem+json", "Out of stock"),
        ({"error": {"type": "x", "message": "No such customer", "code": 7}}, "application/json", "No such customer"),
        ({"error": "invalid_grant", "error_description": "expired"}, "application/json", "expired"),
        ({"message": "Not Found", "documentation_url": "u"}, "application/json", "Not Found"),
        ({"detail": [{"loc": ["body", "n"], "msg": "required"}]}, "application/json", "body.n: required"),
        ({"errors": [{"detail": "a"}, "b", {"message": "c"}, "d"]}, "application/vnd.api+json", "a; b; c"),
        ({"code": 7}, "application/json", '{"code":7}'),
        (["a", "b"], "text/plain", "a; b"),
        ("<html><head><title>Bad &amp; gone</title><style>x{}</style></head><b>Oh</b>", "text/html", "Bad & gone: Oh"),
        ("  plain\n\ttext\x00\x1b[31m red\u202e ", "text/plain", "plain text red"),
        ("not json", "application/json", "not json"),
    ],
)
def test_the_reason_is_found_wherever_servers_put_it(body: Any, content_type: str, told: str) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    assert str(failed(text, content_type, 400)) == f"GET /things/{{id}} answered 400 Bad Request: {told}"


def test_a_failure_without_a_readable_body_is_reported_by_its_status_alone() -> None:
    assert str(failed(b"\0\xff", "image/png", 502)) == "GET /things/{id} answered 502 Bad Gateway"
    assert str(failed(b"", None, 404)) == "GET /things/{id} answered 404 Not Found"


def test_a_long_reason_is_cut() -> None:
    assert len(str(failed("x" * 100_000, "text/plain"))) < 600


@pytest.mark.parametrize("secret", ["s3cr3t/key+1", 'quo"te-secret'])
def test_no_secret_that_was_presented_is_reported_whatever_form_the_server_echoes_it_in(secret: str) -> None:
    forms = [secret, json.dumps(secret), secret.replace("/", "%2F").replace("+", "%2B").replace('"', "%22")]
    error = failed(json.dumps({"detail": "; ".join(forms)}), "application/json", 403, secrets=[secret])
    assert secret not in str(error)
    assert str(error).count("[redacted]") == 3
    unusable = failed(f"<{secret}", "application/json", 200, secrets=[secret])
    assert secret not in str(unusable)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0.5 "}, 0.5),
        ({"Retry-After": format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True)}, 90.0),
        ({"Retry-After": format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True)}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "1" * 400}, None),
        ({"Retry-After-Ms": "1500"}, 1.5),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) + 60)}, 60.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) * 1000 + 60_000)}, 60.0),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, 30.0),
        ({"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "30"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_wait_that_a_server_asks_for_is_kept(status: int, headers: dict[str, str], wait: float | None) -> None:
    error = failed(b"", None, status, headers=headers)
    assert error.retry_after_s == (wait if wait is None else pytest.approx(wait))
    assert error.is_retryable


@pytest.mark.parametrize(
    "headers",
    [{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) + 9)}, {"Retry-After": "9"}],
    ids=["none left", "come back"],
)
def test_a_403_for_too_many_calls_is_a_rate_limit(headers: dict[str, str]) -> None:
    error = failed(b"", None, 403, headers=headers)
    assert isinstance(error, ToolRateLimitError)
    assert (error.category, error.retry_after_s) == (ErrorCategory.RETRYABLE_RATE_LIMIT, 9.0)


def test_a_redirect_that_was_not_followed_is_reported_without_its_query() -> None:
    error = failed(b"", None, 307, headers={"Location": "https://other.example/x?token=abc"})
    assert str(error).endswith("it redirects to 'https://other.example/x', which was not followed.")
    assert "it redirects without an address" in str(failed(b"", None, 302))
    assert "an invalid address" in str(failed(b"", None, 302, headers={"Location": "http://[x"}))


def test_a_redirect_that_the_document_promises_is_the_result() -> None:
    output = answered(b"", None, 302, headers={"Location": "https://cdn/x?sig=1"}, declared={"302": []})
    assert output.content == {"status": 302, "location": "https://cdn/x?sig=1"}


def test_not_modified_is_no_failure() -> None:
    assert answered(b"", None, 304).content is None


PAGE, AFTER = "https://h/things/1", [query("starting_after")]


@pytest.mark.parametrize(
    ("link", "body", "parameters", "arguments"),
    [
        (f'<{PAGE}?page=2&size=5>; rel="next"', [], [query("page", "integer")], {"page_arg": 2}),
        ('<a>; title="x, <y>"; rel=prev, <?page=3>; rel="last next"', [], [query("page")], {"page_arg": "3"}),
        ("", {"next": f"{PAGE}?skip=20"}, [query("skip", "integer")], {"skip_arg": 20}),
        ("", {"next": f"{PAGE}?on=true"}, [query("on", "boolean")], {"on_arg": True}),
        ("", {"next": f"{PAGE}?id=a&id=b"}, [query("id", "array")], {"id_arg": ["a", "b"]}),
        ("", {"_links": {"next": {"href": "?after=z"}}}, [query("after")], {"after_arg": "z"}),
        ("", {"@odata.nextLink": f"{PAGE}?$skip=5"}, [query("$skip", "integer")], {"$skip_arg": 5}),
        ("", {"nextPageToken": "t1"}, [query("pageToken")], {"pageToken_arg": "t1"}),
        ("", {"response_metadata": {"next_cursor": "dXNl="}}, [query("cursor")], {"cursor_arg": "dXNl="}),
        ("", {"metadata": {"continue": "abc"}}, [query("continue")], {"continue_arg": "abc"}),
        ("", {"next_page": {"offset": "o2"}}, [query("offset")], {"offset_arg": "o2"}),
        ("", {"has_more": True, "data": [{"id": "a"}, {"id": "b"}]}, AFTER, {"starting_after_arg": "b"}),
        ("", {"next_page": 3}, [query("page", "integer")], {"page_arg": 3}),
    ],
)
def test_the_next_page_is_reported_as_the_arguments_to_call_with(
    link: str, body: Any, parameters: list[Parameter], arguments: dict[str, Any]
) -> None:
    headers = {"Link": link} if link else {}
    output = answered(
        json.dumps(body), headers=headers, parameters=tuple(parameters), request=PlannedRequest("GET", f"{PAGE}?size=5")
    )
    assert output.content == body
    assert (output.text or "").endswith(f"There is more: call again with {json.dumps(arguments)}.")
    assert output.meta["next"]["arguments"] == arguments


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, '{"next": null, "next_cursor": "", "data": []}'),
        ({}, '{"has_more": false, "data": [{"id": "a"}]}'),
        ({"Link": '</x>; rel="prev"'}, "[]"),
        ({"Link": "garbage <<<;;; rel=next"}, "[]"),
        ({"Link": "<http://[x>; rel=next"}, "[]"),
        ({}, '{"next_cursor": true, "next": "step two"}'),
        ({}, '"next"'),
    ],
)
def test_the_last_page_tells_nothing(headers: dict[str, str], body: str) -> None:
    parameters = (query("cursor"), query("starting_after"))
    assert answered(body, headers=headers, parameters=parameters).text is None


def test_a_next_page_elsewhere_is_reported_by_its_address_without_secrets() -> None:
    link = {"Link": '<https://h/other?key=s3cr3t&page=2>; rel="next"'}
    output = answered(
        "[]",
        headers=link,
        parameters=(query("page"),),
        request=PlannedRequest("GET", "https://h/things/1"),
        secrets=["s3cr3t"],
    )
    assert (output.text or "").endswith("There is more, at https://h/other?key=[redacted]&page=2")
    assert output.meta["next"] == {"arguments": {}, "url": "https://h/other?key=[redacted]&page=2"}


@pytest.mark.parametrize("hostile", ["<" * 300_000, "<script" * 60_000, "<title>" * 60_000, "&lt;" * 90_000])
def test_a_hostile_page_takes_no_longer_than_its_length(hostile: str) -> None:
    began = time.process_time()
    failed(hostile, "text/html", 500)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("hostile", ["<a>;b=" + " " * 60_000, "<" * 60_000, "<a>" + ";a" * 30_000, '<a>;a="' * 8_000])
def test_a_hostile_link_takes_no_longer_than_its_length(hostile: str) -> None:
    began = time.process_time()
    answered("[]", headers={"Link": hostile})
    assert time.process_time() - began < 2.0


@settings(deadline=None)
@given(st.binary(), st.sampled_from(["application/json", "text/html", "text/event-stream", "application/jsonl", ""]))
def test_any_answer_is_output_or_an_error_of_ours(body: bytes, content_type: str) -> None:
    for status in (200, 404):
        try:
            told = answered(body, content_type, status).text or ""
        except ToolError as error:
            told = str(error)
        assert told.isprintable()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.req("DEF-08")
def test_a_status_is_tried_again_only_if_it_is_on_the_list(status: int) -> None:
    error = failed(b"", None, status)
    assert may_repeat(error, "idempotent", RetryPolicy(retry_on_status=[status]))
    assert not may_repeat(error, "idempotent", RetryPolicy(retry_on_status=[]))
    assert not may_repeat(failed(b"", None, 404), "idempotent", RetryPolicy(retry_on_status=[404]))
