"""Webhooks that an operator wrote down, through the front door."""

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.sources.webhook.boxes import by_path, names, plain_box, said, source, toolbox
from tests.wire.site import Received, Site
from toolpost import ToolContext
from toolpost.errors import ToolAuthError, ToolRateLimitError, ToolTimeoutError
from toolpost.sources.base import Services
from toolpost.sources.webhook.source import WebhookSource

GREETING = {"type": "object", "properties": {"greeting": {"type": "string"}}, "required": ["greeting"]}


def tools(**options: Any) -> dict[str, Any]:
    """One tool, named `mine`."""
    return {"tools": {"mine": options}}


@pytest.mark.req("MISC-26")
async def test_the_arguments_are_the_body_and_the_answer_is_the_result() -> None:
    async with Site(said(200, {"greeting": "hi"})) as site:
        async with plain_box(site.url, options=tools(url="greet", output_schema=GREETING)) as box:
            outcome = await box.call("hooks.mine", {"name": "Ann", "deep": {"a": [1, None]}})
        sent = site.last
    assert outcome.content == {"greeting": "hi"}
    assert (sent.method, sent.path, sent.all("content-type")) == ("POST", "/greet", ["application/json"])
    assert json.loads(sent.body) == {"name": "Ann", "deep": {"a": [1, None]}}


ORDER: dict[str, Any] = {"properties": {"item": {"type": "string"}}}


async def test_an_argument_that_its_schema_does_not_name_is_refused() -> None:
    async with Site(said(200, {})) as site:
        async with plain_box(site.url, options=tools(input_schema=ORDER)) as box:
            refused = await box.call("hooks.mine", {"item": "pen", "zzz": 1})
            fine = await box.call("hooks.mine", {"item": "pen"})
        assert (refused.error.error_code, fine.status) == ("validation_failed", "completed")
        assert 'unexpected "zzz"' in str(refused.error)
        assert [json.loads(one.body) for one in site.requests] == [{"item": "pen"}]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**ORDER, "additionalProperties": True},
        {**ORDER, "additionalProperties": {"type": "integer"}},
        {"properties": {}, "patternProperties": {"^z": {}}},
        {**ORDER, "allOf": [{"properties": {"zzz": {}}}]},
    ],
    ids=["nothing named", "open", "open to numbers", "patterns", "composed"],
)
async def test_a_schema_may_let_other_arguments_in(schema: dict[str, Any]) -> None:
    async with Site(said(200, {})) as site:
        async with plain_box(site.url, options=tools(input_schema=schema)) as box:
            await box.call("hooks.mine", {"zzz": 1})
        assert json.loads(site.last.body) == {"zzz": 1}


@pytest.mark.parametrize(
    ("below", "url", "path"),
    [
        ("", "", "/"),
        ("/in/abc", "", "/in/abc"),
        ("/in/", "", "/in/"),
        ("/in", "x y", "/in/x%20y"),
        ("/in/", "/x/", "/in/x/"),
        ("/in?k=1", "x?y=2", "/in/x?k=1&y=2"),
        ("/in", "x?u=http://evil.example/", "/in/x?u=http://evil.example/"),
    ],
)
async def test_a_url_is_a_path_below_the_connection(below: str, url: str, path: str) -> None:
    async with Site(said(200, {})) as site:
        async with plain_box(site.url + below, options=tools(url=url)) as box:
            await box.call("hooks.mine", {})
        assert site.last.path == path


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_method_without_a_body_has_its_arguments_in_the_query(method: str) -> None:
    given = {"q": "a&b=ü", "n": 3, "yes": True, "many": ["x", "y"], "none": None, "deep": {"k": 1}}
    async with Site(said(200, {})) as site:
        async with plain_box(site.url, options=tools(method=method)) as box:
            await box.call("hooks.mine", given)
        sent = site.last
    told = {"q": ["a&b=ü"], "n": ["3"], "yes": ["true"], "many": ["x", "y"], "deep": ['{"k":1}']}
    assert parse_qs(urlsplit(sent.path).query) == told
    assert (sent.method, sent.body, sent.all("content-type")) == (method, b"", [])


async def test_arguments_are_checked_before_anything_is_sent() -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with Site() as site:
        async with plain_box(site.url, options=tools(input_schema=schema)) as box:
            outcome = await box.call("hooks.mine", {"n": "one"})
        assert site.requests == []
    assert outcome.error.error_code == "validation_failed"


async def test_a_connection_alone_is_one_tool_that_takes_any_object() -> None:
    async with Site(said(200, {"ok": True})) as site:
        async with toolbox(source(f"{site.url}/hook")) as box:
            outcome = await box.call("hooks.call", {"any": "thing"})
            found = names(box, "hooks")
        assert [one.path for one in site.requests] == ["/hook"]  # nobody looked what is there
    assert (outcome.content, found) == ({"ok": True}, {"hooks.call"})


async def test_an_address_without_a_path_is_looked_at_without_credentials() -> None:
    login = {"auth_type": "bearer", "auth_config": {"token": "tok-123456"}}
    async with Site(said(200, {"data": "mine"})) as site:
        async with toolbox(source(site.url, **login)) as box:
            outcome = await box.call("hooks.call", {})
        *looks, call = site.requests
    assert outcome.content == {"data": "mine"}
    assert [(look.method, look.path) for look in looks] == [("GET", "/rest/settings"), ("GET", "/api/v1/workflows")]
    assert [look.all("authorization") for look in looks] == [[], []]
    assert call.all("authorization") == ["Bearer tok-123456"]


async def test_an_address_that_no_one_answers_at_says_how_not_to_look(free_port: int) -> None:
    async with toolbox(source(f"http://127.0.0.1:{free_port}")) as box:
        [state] = box.report
    assert "options.kind: plain" in str(state.error)


@pytest.fixture
async def free_port() -> int:
    async with Site() as site:
        return site.port


async def test_credentials_stay_with_the_server_of_the_connection() -> None:
    login = {"auth_type": "bearer", "auth_config": {"token": "tok-123456"}, "headers": {"X-Team": "blue"}}
    async with Site(said(200, {})) as here, Site(said(200, {})) as there:
        both = {"tools": {"mine": {"url": "a"}, "other": {"url": f"{there.url}/b"}}}
        async with plain_box(here.url, options=both, **login) as box:
            first = await box.call("hooks.mine", {})
            second = await box.call("hooks.other", {})
        assert (first.status, second.status) == ("completed", "completed")
        assert (here.last.all("authorization"), here.last.all("x-team")) == (["Bearer tok-123456"], ["blue"])
        assert (there.last.path, there.last.all("authorization"), there.last.all("x-team")) == ("/b", [], [])


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("../up", "options.tools.mine of source 'hooks': the webhook path '../up' contains a segment"),
        ("a/../../b", "contains a segment '.' or '..'"),
        ("ftp://example.com/x", "refused"),
    ],
)
async def test_a_url_that_leads_astray_is_refused(url: str, told: str) -> None:
    async with plain_box("http://127.0.0.1:9/in", options=tools(url=url)) as box:
        [state] = box.report
    assert not state.ok
    assert told in str(state.error)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_redirect_is_not_followed(method: str) -> None:
    async with Site(said(200, {})) as there, Site(said(307, b"", location=f"{there.url}/x")) as site:
        async with plain_box(site.url, options=tools(method=method)) as box:
            outcome = await box.call("hooks.mine", {})
        assert (len(site.requests), len(there.requests)) == (1, 0)
    assert "which was not followed" in str(outcome.error)


# ---------------------------------------------------------------- keys


async def test_a_variable_in_a_url_is_filled_and_never_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken-of-ada")
    monkeypatch.setenv("HOOK_BASE", "base-of-ada")

    async def echo(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(said(500, {"message": f"no such hook: {received.path}"}))

    async with Site(echo) as site:
        tools = {"a": {"url": "services/${HOOK_TOKEN}"}}
        base = f"{site.url}/${{HOOK_BASE}}"
        async with plain_box(site.url, base_url=base, options={"tools": tools}) as box:
            outcome = await box.call("hooks.a", {})
        assert site.last.path == "/services/t0ken-of-ada"
        webhook = {"kind": "n8n", "tools": {"a": {"url": "${HOOK_TOKEN}"}}}
        async with toolbox(source(site.url, base_url=base, options=webhook)) as box:
            other = await box.call("hooks.a", {})
        assert site.last.path == "/base-of-ada/t0ken-of-ada"
    assert "no such hook: /services/[redacted]" in str(outcome.error)
    assert "-of-ada" not in str(other.error)


async def test_a_key_makes_repeating_safe_and_stays_the_same() -> None:
    answers = [said(503, {"message": "busy"}), said(200, {"ok": True})]

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))

    async with Site(answer) as site:
        async with plain_box(site.url, options=tools(idempotency_header="Idempotency-Key")) as box:
            outcome = await box.call("hooks.mine", {"a": 1})
        keys = [one.all("idempotency-key") for one in site.requests]
    assert outcome.content == {"ok": True}
    assert len(keys) == 2
    assert keys[0] == keys[1] != [""]


async def test_without_a_key_a_call_that_may_have_had_its_effect_is_not_repeated() -> None:
    async with Site(said(503, {"message": "busy"})) as site:
        async with plain_box(site.url, options=tools()) as box:
            outcome = await box.call("hooks.mine", {})
        assert len(site.requests) == 1
    assert outcome.error.status_code == 503


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("kind", "body", "content"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("text/plain", b"ok", "ok"),
        ("text/html", b"<p>ok</p>", "<p>ok</p>"),
        ("application/x-ndjson", b'{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
        ("application/x-www-form-urlencoded", b"a=1&b=2", {"a": "1", "b": "2"}),
    ],
)
async def test_an_answer_is_read_by_its_media_type(kind: str, body: bytes, content: Any) -> None:
    async with Site(said(200, body, **{"content-type": kind})) as site, plain_box(site.url) as box:
        outcome = await box.call("hooks.call", {})
    assert outcome.content == content


async def test_a_picture_is_an_artifact() -> None:
    async with Site(said(200, b"\x89PNG\0", **{"content-type": "image/png"})) as site, plain_box(site.url) as box:
        outcome = await box.call("hooks.call", {})
    assert outcome.content["media_type"] == "image/png"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(said(200, b""), "answered 200 with an empty body where a result was promised", id="empty"),
        pytest.param(said(204, b""), "answered 204 with an empty body", id="no content"),
        pytest.param(said(200, b"<html>", **{"content-type": "text/html"}), "a web page where JSON", id="page"),
        pytest.param(said(200, b"\0", **{"content-type": "image/png"}), "image/png where JSON was", id="picture"),
        pytest.param(said(200, b"{oops", **{"content-type": "application/json"}), "cannot be read", id="broken"),
        pytest.param(said(200, {"greeting": 1}), "$.greeting: expected string, got", id="wrong type"),
    ],
)
async def test_an_answer_other_than_promised_is_a_failure_where_outputs_are_strict(answer: bytes, told: str) -> None:
    promised = tools(output_schema=GREETING)
    async with Site(answer) as site, plain_box(site.url, options=promised, outputs="strict") as box:
        outcome = await box.call("hooks.mine", {})
    assert outcome.error.error_code == "output_invalid"
    assert told in str(outcome.error)


async def test_an_answer_of_another_type_than_promised_is_handed_on_with_a_note() -> None:
    async with (
        Site(said(200, {"greeting": 1})) as site,
        plain_box(site.url, options=tools(output_schema=GREETING)) as box,
    ):
        outcome = await box.call("hooks.mine", {})
    assert (outcome.content, len(outcome.meta["output_issues"])) == ({"greeting": 1}, 1)


async def test_what_is_accepted_is_no_result_where_one_is_promised() -> None:
    site, options = Site(said(202, b"", location="/jobs/7")), tools(output_schema=GREETING)
    async with site, plain_box(site.url, options=options) as box:
        outcome = await box.call("hooks.mine", {})
    assert "answered 202 with an empty body where a result was promised" in str(outcome.error)
    assert "Its status is at /jobs/7" in str(outcome.error)


async def test_an_empty_answer_is_no_result_where_none_is_promised() -> None:
    async with Site(said(204, b"")) as site, plain_box(site.url) as box:
        outcome = await box.call("hooks.call", {})
    assert (outcome.status, outcome.content, outcome.text) == ("completed", None, None)


@pytest.mark.parametrize(
    ("answer", "content", "told"),
    [
        (said(202, b"", location="/jobs/7"), None, "may not have finished yet. Its status is at /jobs/7"),
        (
            said(202, {"job": 7}, location="/jobs/7"),
            {"job": 7},
            "may not have finished yet. Its status is at /jobs/7",
        ),
        (said(202, b""), None, "It was accepted and may not have finished yet."),
        (said(201, b"", location="/things/7"), None, "It was created at /things/7"),
    ],
    ids=["empty", "with a body", "without an address", "created"],
)
async def test_a_continuation_elsewhere_is_reported(answer: bytes, content: Any, told: str) -> None:
    async with Site(answer) as site, plain_box(site.url) as box:
        outcome = await box.call("hooks.call", {})
    assert (outcome.status, outcome.content) == ("completed", content)
    assert outcome.text.endswith(told)


async def test_a_status_is_a_failure_and_the_time_to_wait_is_kept() -> None:
    limited = said(429, {"message": "slow down"}, **{"retry-after": "7"})
    async with Site(by_path(limited=limited, login=said(401, {"message": "who?"}))) as site:
        both = {"tools": {"limited": {"url": "limited"}, "login": {"url": "login"}}}
        async with plain_box(site.url, options=both) as box:
            busy = await box.call("hooks.limited", {})
            refused = await box.call("hooks.login", {})
    assert isinstance(busy.error, ToolRateLimitError)
    assert busy.error.retry_after_s == 7
    assert isinstance(refused.error, ToolAuthError)
    assert "Check the source's auth_config and headers" in str(refused.error)


async def test_a_webhook_that_never_answers_is_given_up() -> None:
    async def silence(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with Site(silence) as site, plain_box(site.url, options=tools(timeout_s=0.2)) as box:
        outcome = await box.call("hooks.mine", {})
    assert isinstance(outcome.error, ToolTimeoutError)


async def test_no_secret_of_a_source_is_reported() -> None:
    echo = said(400, {"message": "bad: tok-123456 s3cret-words"})
    given: dict[str, Any] = {"auth_type": "bearer", "auth_config": {"token": "tok-123456"}}
    async with Site(echo) as site:
        signature = {"signature": {"secret": "s3cret-words"}}
        async with plain_box(f"{site.url}/hook/path-key?key=abc12345", options=signature, **given) as box:
            outcome = await box.call("hooks.call", {})
            told = f"{outcome.error.to_dict()} {box.report} {box.registry.find('hooks.call').tool.spec}"
    assert "answered 400" in told
    for secret in ("tok-123456", "s3cret-words", "abc12345", "path-key"):
        assert secret not in told


async def test_a_value_that_no_url_can_carry_is_refused() -> None:
    async with Site() as site:
        async with plain_box(site.url, options=tools(method="GET")) as box:
            outcome = await box.call("hooks.mine", {"half": "\ud800"})
        assert site.requests == []
    assert outcome.error.error_code == "validation_failed"


async def test_a_tool_can_be_run_without_a_router() -> None:
    async with Site(said(200, {"ok": True})) as site:
        one = WebhookSource(source(site.url, options={"kind": "plain", **tools(idempotency_header="Key")}), Services())
        try:
            [tool] = await one.discover()
            result = await tool.execute({"a": 1}, ToolContext())
        finally:
            await one.close()
        assert site.last.all("key") != [""]
    assert (result.success, result.result) == (True, {"ok": True})
