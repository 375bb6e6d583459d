"""HTTP call templates: what a call becomes on the wire, what an answer becomes, and who is let in."""

import asyncio
import base64
from typing import Any

import pytest

from tests.sources.utcp.app import PICTURE
from tests.sources.utcp.serving import App, manual, source, tool, toolbox
from tests.wire.site import Received, Site, reply
from toolpost import Completed, ToolContext, ToolError
from toolpost.auth.credentials import static_credential
from toolpost.errors import ToolAuthError, ToolClientError, ToolRateLimitError, ToolServerError, ToolValidationError
from toolpost.sources.base import Services
from toolpost.sources.utcp.source import UtcpSource

pytestmark = pytest.mark.programs


async def called(template: dict[str, Any], arguments: dict[str, Any], **options: Any) -> Any:
    async with toolbox(source(manual(tool("t", template)), **options)) as box:
        assert box.problems == []
        return await box.call("m.t", arguments)


@pytest.mark.req("GEN-06")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_is_sent_as_it_is_written(app: App, method: str) -> None:
    outcome = await called(app.http("/echo", http_method=method.lower()), {"a": 1})

    assert (outcome.content["method"], outcome.content["query"]) == (method, {"a": ["1"]})


async def test_the_path_is_encoded_and_the_rest_is_the_query(app: App) -> None:
    arguments = {"id": "a b/../c?d", "flag": True, "half": 0.5, "many": ["x", "y&z"], "left": None, "deep": {"k": [1]}}

    outcome = await called(app.http("/echo/{id}?fixed=1"), arguments)

    assert outcome.content["path"] == "/echo/a%20b%2F..%2Fc%3Fd"
    assert outcome.content["query"] == {
        "fixed": ["1"],
        "flag": ["true"],
        "half": ["0.5"],
        "many": ["x", "y&z"],
        "deep": ['{"k":[1]}'],
    }


async def test_a_place_may_have_any_name(app: App) -> None:
    outcome = await called(app.http("/echo/{a place}?q={its q}"), {"a place": "x y", "its q": "z"})

    assert (outcome.content["path"], outcome.content["query"]) == ("/echo/x%20y", {"q": ["z"]})


@pytest.mark.parametrize("arguments", [{}, {"id": None}])
async def test_a_path_without_its_argument_is_not_called(app: App, arguments: dict[str, Any]) -> None:
    outcome = await called(app.http("/echo/{id}"), arguments)

    assert isinstance(outcome.error, ToolValidationError)
    assert "id" in str(outcome.error)


@pytest.mark.parametrize(
    ("content_type", "body", "sent"),
    [
        ("application/json", {"a": [1, None]}, '{"a":[1,null]}'),
        ("application/vnd.api+json", [1], "[1]"),
        ("application/x-www-form-urlencoded", {"a": "x y", "b": [1, True], "c": None}, "a=x+y&b=1&b=true"),
        ("text/plain", "as it is", "as it is"),
        ("application/octet-stream", {"base64": "Ynl0ZXM="}, "bytes"),
    ],
    ids=["json", "suffix", "form", "text", "file"],
)
async def test_a_body_is_written_as_its_type_asks(app: App, content_type: str, body: Any, sent: str) -> None:
    template = app.http("/echo", http_method="POST", content_type=content_type, body_field="data")

    outcome = await called(template, {"data": body, "other": "x"})

    assert outcome.content["body"] == sent
    assert outcome.content["headers"]["content-type"] == content_type
    assert outcome.content["query"] == {"other": ["x"]}


async def test_parts_of_a_form_may_be_files(app: App) -> None:
    body = {"note": "hello", "file": {"text": "content", "filename": "a.txt"}}

    outcome = await called(app.http("/echo", http_method="POST", content_type="multipart/form-data"), {"body": body})

    assert 'name="file"; filename="a.txt"' in outcome.content["body"]
    assert outcome.content["headers"]["content-type"].startswith("multipart/form-data; boundary=")


async def test_headers_are_fixed_or_arguments(app: App) -> None:
    template = app.http("/echo", headers={"X-Fixed": "f", "X-Both": "template"}, header_fields=["X-Both", "X-Given"])

    outcome = await called(template, {"X-Both": "argument", "X-Given": 7}, headers={"X-Operator": "o"})

    headers = outcome.content["headers"]
    given = [headers[name] for name in ("x-fixed", "x-both", "x-given", "x-operator")]
    assert given == ["f", "argument", "7", "o"]
    assert outcome.content["query"] == {}


async def test_a_header_cannot_be_ended_by_an_argument(app: App) -> None:
    outcome = await called(app.http("/echo", header_fields=["X-Given"]), {"X-Given": "a\r\nX-Other: b"})

    assert isinstance(outcome.error, ToolValidationError)


async def test_bytes_are_an_artifact_and_an_empty_answer_is_nothing(app: App) -> None:
    async with toolbox(
        source(manual(tool("p", app.http("/picture")), tool("e", app.http("/expire", http_method="POST"))))
    ) as box:
        outcome = await box.call("m.p", {})
        [artifact] = outcome.artifacts
        kept = await box.store.artifacts.read(artifact, tenant="local")
        empty = await box.call("m.e", {})

    assert kept == PICTURE
    assert empty.content is None


async def test_a_redirect_of_a_read_is_followed(app: App) -> None:
    outcome = await called(app.http("/moved"), {})

    assert outcome.content["path"] == "/echo/there"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, ToolAuthError),
        (404, ToolClientError),
        (422, ToolClientError),
        (429, ToolRateLimitError),
        (503, ToolServerError),
    ],
)
async def test_a_status_is_a_failure_that_says_what_the_server_said(
    app: App, status: int, error: type[ToolError]
) -> None:
    auth = {"auth_type": "api_key", "api_key": "Bearer very-secret-key", "var_name": "Authorization"}

    outcome = await called(app.http(f"/status/{status}", auth=auth), {})

    assert isinstance(outcome.error, error)
    assert outcome.error.status_code == status
    assert "you sent" in str(outcome.error)
    assert "very-secret-key" not in str(outcome.error)


@pytest.mark.parametrize(
    ("location", "place"),
    [("header", "headers"), ("query", "query"), ("cookie", "cookies")],
    ids=["header", "query", "cookie"],
)
async def test_an_api_key_goes_where_the_manual_says(app: App, location: str, place: str) -> None:
    auth = {"auth_type": "api_key", "api_key": "k-1", "var_name": "x-key", "location": location}

    outcome = await called(app.http("/echo", auth=auth), {"x-key": "not this one"} if location == "query" else {})

    assert outcome.content[place]["x-key"] in ("k-1", ["k-1"])


async def test_a_name_and_a_password_are_presented(app: App) -> None:
    auth = {"auth_type": "basic", "username": "ann", "password": "pä:ss"}

    outcome = await called(app.http("/echo", auth=auth), {})

    word, _, value = outcome.content["headers"]["authorization"].partition(" ")
    assert (word, base64.b64decode(value).decode()) == ("Basic", "ann:pä:ss")


async def test_a_client_gets_its_token_and_a_new_one_when_that_is_refused(app: App) -> None:
    auth = {
        "auth_type": "oauth2",
        "token_url": f"{app.address}/token",
        "client_id": "me",
        "client_secret": "s3cret-s3cret",
    }
    async with toolbox(source(manual(tool("t", app.http("/guarded", auth=auth, http_method="POST"))))) as box:
        first = await box.call("m.t", {})
        again = await box.call("m.t", {})
        app.expire()
        after = await box.call("m.t", {})

    assert first.content == again.content
    assert isinstance(after, Completed)
    assert after.content != first.content


async def test_a_secret_that_is_only_taken_in_a_header_is_not_offered_again_in_the_body() -> None:
    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        if received.path != "/token":
            writer.write(reply(401 if received.all("authorization") == ["Bearer 2"] else 200))
        elif received.all("authorization"):
            writer.write(reply(body=b'{"access_token": "%d"}' % len(site.requests), content_type="application/json"))
        else:
            writer.write(reply(401, b'{"error": "invalid_client"}', content_type="application/json"))

    async with Site(answer) as site:
        auth = {"auth_type": "oauth2", "token_url": f"{site.url}/token", "client_id": "me", "client_secret": "secret"}
        template = {"call_template_type": "http", "url": f"{site.url}/t", "auth": auth}
        async with toolbox(source(manual(tool("t", template)))) as box:
            outcomes = [await box.call("m.t", {}) for _ in range(2)]

    assert [outcome.status for outcome in outcomes] == ["completed", "completed"]
    assert [request.path for request in site.requests] == ["/token", "/token", "/t", "/token", "/t", "/t"]


async def test_a_client_that_is_refused_is_reported_without_its_secret(app: App) -> None:
    auth = {
        "auth_type": "oauth2",
        "token_url": f"{app.address}/token",
        "client_id": "me",
        "client_secret": "wrong-secret",
    }

    outcome = await called(app.http("/guarded", auth=auth), {})

    assert isinstance(outcome.error, ToolAuthError)
    assert "invalid_client" in str(outcome.error)
    assert "wrong-secret" not in str(outcome.error)


@pytest.mark.req("DEF-02")
async def test_the_credential_of_the_source_reaches_the_call_and_comes_before_the_manuals(app: App) -> None:
    auth = {"auth_type": "api_key", "api_key": "Bearer of-the-manual", "var_name": "Authorization"}
    given = {"auth_type": "bearer", "auth_config": {"token": "of-the-source"}}

    plain = await called(app.http("/echo"), {}, **given)
    both = await called(app.http("/echo", auth=auth), {}, **given)

    assert plain.content["headers"]["authorization"] == "Bearer of-the-source"
    assert both.content["headers"]["authorization"] == "Bearer of-the-source"


async def test_what_a_method_does_is_known_before_it_is_called(app: App) -> None:
    methods = {"get": "GET", "put": "PUT", "post": "POST", "delete": "DELETE"}
    tools = [tool(name, app.http("/echo", http_method=method)) for name, method in methods.items()]
    async with toolbox(source(manual(*tools))) as box:
        specs = {name: box.registry.find(f"m.{name}").spec for name in methods}

    effects = {name: (spec.side_effects, spec.replay, spec.safety.destructive) for name, spec in specs.items()}
    assert effects == {
        "get": ("read", "idempotent", False),
        "put": ("external", "idempotent", None),
        "post": ("external", "unsafe", None),
        "delete": ("external", "idempotent", True),
    }


async def test_a_body_that_is_not_what_it_says_is_reported(app: App) -> None:
    app.publish("broken", b'{"a": ')

    outcome = await called(app.http("/published/broken"), {})

    assert outcome.error.error_code == "output_invalid"
    assert "/published/broken" in str(outcome.error)


async def test_a_key_that_a_header_cannot_carry_is_reported_without_it(app: App) -> None:
    auth = {"auth_type": "api_key", "api_key": "two\nlines-of-key", "var_name": "x-key"}

    outcome = await called(app.http("/echo", auth=auth), {})

    assert "x-key" in str(outcome.error)
    assert "lines-of-key" not in str(outcome.error)


async def test_a_tool_can_be_run_by_itself(app: App) -> None:
    config = source(manual(tool("t", app.http("/echo"))), auth_type="bearer", auth_config={"token": "tok-1"})
    utcp = UtcpSource(config, Services(credential=static_credential(config)))
    [found] = await utcp.discover()
    result = await found.execute({"a": 1}, ToolContext())
    await utcp.close()
    await utcp.close()

    assert result.result["query"] == {"a": ["1"]}
    assert result.result["headers"]["authorization"] == "Bearer tok-1"


async def test_an_argument_cannot_double_what_the_address_fixes(app: App) -> None:
    outcome = await called(app.http("/echo?tenant=a"), {"tenant": "b"})

    assert isinstance(outcome.error, ToolValidationError)
    assert "tenant: the address already sets it" in str(outcome.error)


@pytest.mark.parametrize("outputs", [None, "strict"])
async def test_an_answer_that_breaks_the_manuals_schema_is_handed_on_with_a_note_unless_strict(
    app: App, outputs: str | None
) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "integer"}}}
    one = tool("t", app.http("/echo"), outputs=schema)
    async with toolbox(source(manual(one), outputs=outputs)) as box:
        outcome = await box.call("m.t", {})

    if outputs == "strict":
        assert outcome.error.error_code == "output_invalid"
    else:
        assert outcome.content["path"] == "/echo"
        assert len(outcome.meta["output_issues"]) == 1
