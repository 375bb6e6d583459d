"""Operations of a FastAPI application, read from its own document and called over the wire."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.parts import reserved_port
from tests.sources.openapi.apps.serving import Caller, api_from, calling, served
from toolpost.auth.credentials import with_environment
from toolpost.contracts.calls import Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolOutputError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.sources.files import File
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy

pytestmark = pytest.mark.programs

CLIENT = {"client_id": "me", "client_secret": "s3cr3t/ü"}
BOX = {"label": "outer", "inside": [{"label": "inner", "payment": {"by": "cash", "coins": [1, 2]}}]}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("shop") as address:
        yield address


@pytest.fixture
async def shop(address: str) -> AsyncIterator[Caller]:
    url = f"{address}/openapi.json"
    async with (
        HttpClient(NetworkPolicy().for_source(url)) as client,
        await client.send(Request("GET", url)) as document,
    ):
        api = await api_from(await document.read(), url)
    async with calling(api, address) as caller:
        yield caller


async def failed(call: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await call
    return caught.value


async def test_path_query_array_enum_boolean_number_header_and_cookie_arrive(shop: Caller) -> None:
    arguments = {"item_id": "a bü", "kind": "toy", "tags": ["x", "y&z"], "sold": False, "price": 1e-7, "session": "a=="}
    output = await shop("GET /items/{item_id}", {**arguments, "x-trace": "t 1"})
    assert output.content == {**arguments, "x_trace": "t 1"}


async def test_none_for_an_optional_parameter_is_not_sent(shop: Caller) -> None:
    arguments = {"item_id": "1", "kind": None, "tags": None, "sold": None, "price": None, "session": None}
    output = await shop("GET /items/{item_id}", arguments)
    assert (output.content["sold"], output.content["kind"], shop.sent[0].url[-8:]) == (None, "book", "/items/1")


async def test_an_unknown_argument_never_leaves(shop: Caller) -> None:
    error = await failed(shop("GET /items/{item_id}", {"item_id": "1", "colour": "red"}))
    assert isinstance(error, ToolValidationError)
    assert shop.sent == []


async def test_a_nested_recursive_body_with_alternatives_arrives(shop: Caller) -> None:
    output = await shop("POST /boxes", {"body": BOX})
    inner = {"label": "inner", "inside": [], "payment": {"by": "cash", "coins": [1, 2]}}
    assert output.content == {"label": "outer", "inside": [inner], "payment": None}


async def test_an_array_body_and_a_parameter_that_is_called_body(shop: Caller) -> None:
    assert (await shop("POST /numbers", {"body": [1, 2, 3]})).content == 6
    output = await shop("POST /notes", {"body": "in the query", "body_": {"n": None}})
    assert output.content == {"parameter": "in the query", "carried": {"n": None}}


async def test_an_optional_body_may_be_left_out(shop: Caller) -> None:
    given = [await shop("POST /maybe", arguments) for arguments in ({}, {"body": None}, {"body": BOX})]
    assert [output.content for output in given] == [{"given": False}, {"given": False}, {"given": True}]


async def test_a_form_arrives(shop: Caller) -> None:
    form = {"name": "Ann & Ü+", "scopes": ["a", "b c"], "remember": True}
    assert (await shop("POST /login", {"body": form})).content == form


async def test_files_arrive_with_their_names_and_types(shop: Caller) -> None:
    picture = bytes(range(256))
    body = {
        "title": "Ü",
        "cover": {"artifact_id": "art-1"},
        "pages": [{"text": "one", "filename": "1.md"}, {"base64": "AAE=", "content_type": "image/x-own"}],
    }
    output = await shop("POST /upload", {"body": body}, files={"art-1": File(picture, "image/png", "ü.png")})
    assert output.content == {
        "title": "Ü",
        "files": [
            ["ü.png", "image/png", base64.b64encode(picture).decode()],
            ["1.md", "text/markdown", "b25l"],
            ["pages", "image/x-own", "AAE="],
        ],
    }


async def test_bytes_arrive_as_they_are(shop: Caller) -> None:
    data = base64.b64encode(bytes(range(256))).decode()
    assert (await shop("POST /raw", {"body": {"base64": data}})).content == 256


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ToolAuthError),
        (403, ToolAuthError),
        (404, ToolClientError),
        (409, ToolClientError),
        (500, ToolServerError),
    ],
)
async def test_a_status_is_an_error_with_the_status_and_what_the_server_said(
    shop: Caller, status: int, kind: type[ToolError]
) -> None:
    error = await failed(shop("GET /failures/{status}", {"status": status}))
    assert (type(error), error.status_code) == (kind, status)
    assert f"the shop says {status}" in str(error)


async def test_an_error_that_the_server_finds_is_reported(shop: Caller) -> None:
    error = await failed(shop("POST /boxes", {"body": {"label": 7}}))
    assert error.status_code == 422
    assert "body.label: Input should be a valid string" in str(error)


async def test_a_rate_limit_keeps_the_wait(shop: Caller) -> None:
    error = await failed(shop("GET /failures/{status}", {"status": 429, "after": "7"}))
    assert isinstance(error, ToolRateLimitError)
    assert error.retry_after_seconds == 7.0
    dated = await failed(shop("GET /failures/{status}", {"status": 503, "after": "Wed, 21 Oct 2015 07:28:00 GMT"}))
    assert (dated.retry_after_s, dated.is_retryable) == (0.0, True)


async def test_a_problem_and_a_page_are_reported_in_one_line(shop: Caller) -> None:
    assert str(await failed(shop("GET /problem"))).endswith("409 Conflict: Out of stock: Come back on Monday.")
    assert str(await failed(shop("GET /crash"))).endswith("500 Internal Server Error: Oops: Server error")


async def test_a_redirect_that_leads_nowhere_or_needs_a_second_post_is_an_error(shop: Caller) -> None:
    nowhere = await failed(shop("GET /nowhere"))
    assert (type(nowhere), nowhere.status_code) == (ToolNodeError, 302)
    elsewhere = await failed(shop("POST /elsewhere"))
    assert "redirects to '/items/1', which was not followed" in str(elsewhere)


async def test_a_picture_stays_bytes(shop: Caller) -> None:
    assert await shop("GET /picture") == ToolOutput(bytes(range(256)) * 4, None, "image/png", {"status": 200})


async def test_no_content_is_nothing_and_json_of_other_names_is_parsed(shop: Caller) -> None:
    assert (await shop("DELETE /items/{item_id}", {"item_id": "1"})).content is None
    assert (await shop("GET /resource")).content == {"data": {"id": "1"}}
    assert (await shop("GET /plain")).content == "grüße"


async def test_head_reports_what_the_headers_say(shop: Caller) -> None:
    output = await shop("HEAD /items/{item_id}", {"item_id": "7"})
    assert (output.content["status"], output.content["headers"]["etag"]) == (200, '"7"')
    assert "set-cookie" not in output.content["headers"]


async def test_the_next_page_can_be_called_until_there_is_none(shop: Caller) -> None:
    arguments: dict[str, Any] = {"size": 5}
    seen = []
    for _ in range(5):
        output = await shop("GET /page", arguments)
        seen.append(output.content)
        _, more, told = (output.text or "").partition("call again with ")
        if not more:
            break
        arguments |= json.loads(told.removesuffix("."))
    assert seen == [[1, 5], [2, 5], [3, 5]]
    assert 'again with {"cursor": "c2"}' in ((await shop("GET /cursor")).text or "")


async def test_streams_are_lists(shop: Caller) -> None:
    assert (await shop("GET /lines")).content == [{"n": 1}, {"n": 2}]
    events = [{"event": "start", "data": "hello"}, {"id": "7", "data": {"n": 1}}]
    assert (await shop("GET /events")).content == events


async def test_a_stream_that_does_not_end_is_what_came_until_the_time_was_up(shop: Caller, address: str) -> None:
    async with calling(shop.api, address, timeout_s=0.5) as hasty:
        output = await hasty("GET /endless")
    assert output.content == [{"data": "0"}]
    assert (output.text or "").endswith("The stream was cut off; this is the part received until then.")


async def test_a_page_in_place_of_json_and_half_a_document_are_errors(shop: Caller) -> None:
    assert isinstance(wrong := await failed(shop("GET /wrong")), ToolOutputError)
    assert "web page where JSON was promised" in str(wrong)
    assert isinstance(broken := await failed(shop("GET /broken")), ToolOutputError)
    assert "cannot be read" in str(broken)


async def test_a_slow_answer_ends_with_the_time_that_was_given(shop: Caller, address: str) -> None:
    async with calling(shop.api, address, timeout_s=0.3) as hasty:
        error = await failed(hasty("GET /slow"))
    assert isinstance(error, ToolTimeoutError)


@pytest.mark.parametrize(
    ("wanted", "scheme", "value", "content"),
    [
        ("GET /keys/header", "headerKey", "s3/cr&t", "s3/cr&t"),
        ("GET /keys/query", "queryKey", "s3/cr&t", "s3/cr&t"),
        ("GET /keys/cookie", "cookieKey", "s3/cr&t==", "s3/cr&t=="),
        ("GET /bearer", "bearer", "tok", "tok"),
        ("GET /basic", "basic", {"username": "ann", "password": "p:w %"}, ["ann", "p:w %"]),
    ],
)
async def test_each_kind_of_credential_is_accepted(
    shop: Caller, wanted: str, scheme: str, value: Any, content: Any
) -> None:
    assert (await shop(wanted, schemes={scheme: value})).content == content
    error = await failed(shop(wanted))
    assert f"Set auth_config.schemes.{scheme} of source 'shop'" in str(error)


@pytest.mark.req("UTCP-05")
async def test_variables_fill_the_credentials_of_an_api_that_was_found_by_its_document(shop: Caller) -> None:
    given: dict[str, Any] = {"queryKey": "${SHOP_KEY}", "basic": {"username": "ann", "password": "${SHOP_PW}"}}
    given["oauth"] = {"client_id": "me", "client_secret": "${SHOP_SECRET}"}
    config = ExternalToolConfig(
        name="shop", transport="http", connection="http://shop/openapi.json", auth_config={"schemes": given}
    )
    environ = {"SHOP_KEY": "k 1", "SHOP_PW": "pw", "SHOP_SECRET": CLIENT["client_secret"]}
    schemes = with_environment(config, environ).auth_config["schemes"]
    assert (await shop("GET /keys/query", schemes=schemes)).content == "k 1"
    assert (await shop("GET /basic", schemes=schemes)).content == ["ann", "pw"]
    assert (await shop("POST /buy", schemes=schemes)).content.startswith("Bearer t")


async def test_the_plain_credential_goes_where_the_scheme_says(shop: Caller) -> None:
    plain = Credential("k", {"X-API-Key": "plain"})
    for place in ("header", "query", "cookie"):
        assert (await shop(f"GET /keys/{place}", credential=plain)).content == "plain"


async def test_a_public_operation_gets_no_credential(shop: Caller) -> None:
    schemes = {"queryKey": "k", "bearer": "b"}
    plain = Credential("k", {"Authorization": "Bearer plain"})
    assert (await shop("GET /public", schemes=schemes, credential=plain)).content == [None, None]


async def test_a_key_in_the_query_shows_in_no_error(shop: Caller) -> None:
    with reserved_port() as port:
        dead = f"http://127.0.0.1:{port}"
        keyed = replace(shop.operation("GET /keys/query"), servers=(dead,))
        async with calling(replace(shop.api, operations=(keyed,)), dead) as caller:
            error = await failed(caller("GET /keys/query", schemes={"queryKey": "s3cr3t-key"}))
    assert isinstance(error, ToolConnectionError)
    assert caller.sent[0].wire_url == f"{dead}/keys/query?key=s3cr3t-key"
    assert "s3cr3t" not in f"{error} {error.__cause__!r} {caller.sent}"


async def test_client_credentials_are_fetched_once_and_again_when_the_token_is_refused(shop: Caller) -> None:
    schemes = {"oauth": CLIENT}
    first = await asyncio.gather(*(shop("POST /buy", schemes=schemes) for _ in range(10)))
    await shop("POST /revoke")
    second = await asyncio.gather(*(shop("POST /buy", schemes=schemes) for _ in range(10)))
    assert {len({output.content for output in outputs}) for outputs in (first, second)} == {1}
    assert first[0].content != second[0].content
    assert [b"scope=buy" in body for body in shop.token_bodies] == [True, True]


async def test_a_wrong_client_secret_is_refused_without_being_shown(shop: Caller) -> None:
    error = await failed(shop("POST /buy", schemes={"oauth": {**CLIENT, "client_secret": "wr0ng-secret"}}))
    assert isinstance(error, ToolAuthError)
    assert "invalid_client: not …" in str(error)
    assert "wr0ng" not in str(error)
