"""What an n8n, or what only looks like one, may answer that is of no use; each answer here is made by hand."""

import asyncio
import json
from typing import Any

import pytest

from tests.sources.webhook.boxes import by_path, listing, n8n_box, names, said, sticky, workflow
from tests.sources.webhook.replay import N8n
from tests.wire.site import Received, Site
from toolpost.errors import ToolTimeoutError

KEY = "key-1234567890"
# What n8n 1.123 answers where N8N_PUBLIC_API_DISABLED is set.
SWITCHED_OFF = said(404, b"<pre>Cannot GET /api/v1/workflows</pre>", **{"content-type": "text/html; charset=utf-8"})


def box_of(site: Site, **options: Any) -> Any:
    webhook = {"kind": "n8n", **options.pop("options", {})}
    return n8n_box(N8n(site.url, KEY), options=webhook, **options)


# ---------------------------------------------------------------- the API


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(said(401, {"message": "unauthorized"}), "rejects the API key (unauthorized)", id="wrong key"),
        pytest.param(said(403, {"message": "Forbidden"}), "give it the scope workflow:list", id="no scope"),
        pytest.param(SWITCHED_OFF, "it is switched off there (N8N_PUBLIC_API_DISABLED)", id="switched off"),
        pytest.param(said(200, b"<html>", **{"content-type": "text/html"}), "is the connection its base", id="page"),
        pytest.param(said(200, {"data": "none"}), "did not answer as n8n's API does", id="no list"),
        pytest.param(said(200, [1]), "did not answer as n8n's API does", id="no object"),
        pytest.param(said(502, {"message": f"upstream {KEY}"}), "answered 502", id="broken"),
    ],
)
async def test_an_api_that_gives_no_workflows_says_why(answer: bytes, told: str) -> None:
    async with Site(answer) as site, box_of(site) as box:
        [state] = box.report
    assert not state.ok
    assert told in str(state.error)
    assert KEY not in str(state.error)


async def test_a_list_that_goes_round_in_circles_is_given_up() -> None:
    async with Site(listing(cursor="again")) as site:
        async with box_of(site) as box:
            [state] = box.report
        assert len(site.requests) == 2
    assert "an invalid or repeated cursor" in str(state.error)


async def test_the_key_goes_to_the_api_and_never_to_a_webhook() -> None:
    site = Site(by_path(workflows=listing(workflow()), flow=said(200, {"ok": True})))
    headers = {"X-N8N-API-KEY": "other-key-12345", "X-Team": "blue"}
    async with site:
        async with box_of(site, headers=headers) as box:
            outcome = await box.call("n8n.flow", {})
        asked, called = site.requests
    assert outcome.content == {"ok": True}
    assert KEY in asked.all("x-n8n-api-key")
    assert called.path == "/webhook/flow"
    assert (called.all("x-n8n-api-key"), called.all("x-api-key"), called.all("x-team")) == ([], [], ["blue"])


async def test_an_n8n_is_recognised_and_asked_without_being_named() -> None:
    settings = {"data": {"settingsMode": "public", "userManagement": {}, "authCookie": {}}}
    async with Site(by_path(settings=said(200, settings), workflows=listing(workflow()))) as site:
        async with n8n_box(N8n(site.url, KEY)) as box:
            found = names(box, "n8n")
        look = site.requests[0]
    assert found == {"n8n.flow"}
    assert (look.path, look.all("x-n8n-api-key")) == ("/rest/settings", [])


@pytest.mark.parametrize(
    "given",
    [
        {"auth_config": {"api_key": KEY}},
        {"auth_config": {"api_key": KEY, "header": "X-N8N-API-KEY"}},
        {"auth_type": "none", "auth_config": {}, "headers": {"x-n8n-api-key": KEY}},
    ],
    ids=["without a header", "with a header", "as a header"],
)
@pytest.mark.parametrize("kind", ["auto", "n8n"])
async def test_no_webhook_with_a_url_of_its_own_is_sent_the_key(kind: str, given: dict[str, Any]) -> None:
    settings = {"data": {"settingsMode": "public", "userManagement": {}, "authCookie": {}}}
    site = Site(by_path(settings=said(200, settings), workflows=listing(), mine=said(200, {"ok": True})))
    async with site:
        webhook = {"kind": kind, "tools": {"mine": {"url": "webhook/mine"}}}
        async with n8n_box(N8n(site.url, KEY), options=webhook, **given) as box:
            assert (await box.call("n8n.mine", {})).content == {"ok": True}
        assert KEY in str(site.requests[-2].headers)
        assert site.last.path == "/webhook/mine"
        assert KEY not in str(site.last.headers)


@pytest.mark.parametrize(
    ("given", "header", "value"),
    [
        ({"auth_type": "basic", "auth_config": {"username": "u", "password": "p"}}, "authorization", "Basic dTpw"),
        ({"auth_config": {"api_key": "sesame", "header": "X-Hook"}}, "x-hook", "sesame"),
    ],
    ids=["basic", "a header of its own"],
)
async def test_a_login_that_is_no_key_of_the_api_goes_to_the_webhooks(given: Any, header: str, value: str) -> None:
    site = Site(by_path(workflows=listing(workflow()), flow=said(200, {"ok": True})))
    async with site:
        async with box_of(site, headers={"X-N8N-API-KEY": KEY}, **given) as box:
            outcome = await box.call("n8n.flow", {})
        asked, called = site.requests
    assert outcome.content == {"ok": True}
    assert asked.all("x-n8n-api-key") == [KEY]
    assert (called.all("x-n8n-api-key"), called.all(header)) == ([], [value])


async def test_without_a_key_of_the_api_another_login_still_opens_webhooks() -> None:
    given = {"auth_config": {"api_key": "sesame", "header": "X-Hook"}}
    async with Site(said(200, {"ok": True})) as site:
        async with box_of(site, options={"tools": {"mine": {"url": "webhook/mine"}}}, **given) as box:
            outcome = await box.call("n8n.mine", {})
        [called] = site.requests
    assert outcome.content == {"ok": True}
    assert called.all("x-hook") == ["sesame"]


async def test_the_query_of_a_connection_is_not_in_the_way_of_looking() -> None:
    async with Site(by_path(settings=said(404, {}))) as site:
        async with n8n_box(N8n(f"{site.url}?token=t0ken-of-ada", KEY)):
            pass
        assert [one.path for one in site.requests] == ["/rest/settings", "/api/v1/workflows"]


@pytest.mark.parametrize("cursor", ["again", "\ud800"], ids=["again", "no bytes"])
async def test_a_list_that_takes_too_long_is_given_up(cursor: str) -> None:
    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        await (asyncio.Event().wait() if "cursor" in received.path else asyncio.sleep(0))
        writer.write(listing(cursor=cursor))

    async with Site(answer) as site, box_of(site, connect_timeout_s=0.3) as box:
        [state] = box.report
    assert not state.ok
    assert "did not list its workflows within 0.3 s; raise connect_timeout_s" in str(state.error)


async def test_every_page_is_asked_for() -> None:
    pages = {None: listing(workflow("One", "one"), cursor="two/2="), "two%2F2%3D": listing(workflow("Two", "two"))}

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        cursor = received.path.partition("&cursor=")[2] or None
        writer.write(pages[cursor])

    async with Site(answer) as site, box_of(site) as box:
        assert names(box, "n8n") == {"n8n.one", "n8n.two"}


# ---------------------------------------------------------------- workflows


async def found_in(*workflows: Any, **options: Any) -> tuple[set[str], str]:
    """The names of the tools that these give, and what is said of the rest."""
    async with Site(listing(*workflows)) as site, box_of(site, **options) as box:
        return names(box, "n8n"), "\n".join(box.problems)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param("text", id="no object"),
        pytest.param({"name": "X", "active": True}, id="no nodes"),
        pytest.param({"name": "X", "active": True, "nodes": "many"}, id="nodes of text"),
        pytest.param({"name": "X", "active": True, "nodes": [None, 3, {}]}, id="no node"),
        pytest.param(workflow("X", "x", active=False), id="asleep"),
        pytest.param(workflow("X", "x", isArchived=True), id="archived"),
        pytest.param(workflow("X", "x", node={"disabled": True}), id="disabled"),
        pytest.param(workflow("X", "={{ $env.P }}"), id="path of an expression"),
        pytest.param(workflow("X", "../../api/v1/users"), id="path that climbs"),
        pytest.param(workflow("X", "x", parameters={"httpMethod": "={{ 1 }}"}), id="method of an expression"),
        pytest.param(workflow("X", "x", parameters={"path": 3}), id="path of a number"),
        pytest.param(workflow("X", "a\ud800b"), id="path that has no bytes"),
        pytest.param(workflow("X", "", node={"webhookId": "\ud800"}), id="webhook that has no bytes"),
        pytest.param(workflow("Good", "good"), id="the same again"),
    ],
)
async def test_what_cannot_be_called_is_left_out_and_the_others_stay(odd: Any) -> None:
    found, _ = await found_in(odd, workflow("Good", "good"))
    assert found == {"n8n.good"}


async def test_what_is_odd_beside_a_path_with_arguments_is_not_required() -> None:
    note = sticky('{"properties": {"id": {"type": "string"}}, "required": [["a"], 3, "id"]}')
    site = Site(by_path(workflows=listing(workflow("Odd", "odd/:id", nodes=[note])), x=said(200, {"ok": 1})))
    async with site, box_of(site) as box:
        outcome = await box.call("n8n.odd", {"id": "x"})
    assert outcome.content == {"ok": 1}


async def test_a_tool_that_the_operator_wrote_goes_before_a_workflow_of_its_name() -> None:
    site = Site(by_path(workflows=listing(workflow("Orders", "theirs")), mine=said(200, {"mine": True})))
    async with site, box_of(site, options={"tools": {"orders": {"url": "webhook/mine"}}}) as box:
        outcome = await box.call("n8n.orders", {})
        [problem] = box.problems
    assert outcome.content == {"mine": True}
    assert "workflow 'Orders' is replaced by options.tools.orders, which has its own url" in problem


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (
            workflow("X", "={{ 1 }}"),
            "workflow 'X' has a webhook that is skipped: its path or method is an n8n expression",
        ),
        ({"name": "X", "nodes": 1}, "workflow 'X' has no nodes that can be read"),
        (workflow("X", "x", nodes=[sticky('```json\n{"type":\n```')]), "tool 'x': its block 'json' is not JSON"),
        (workflow("X", "x", nodes=[sticky("y" * 60_000)]), "a note of 60,000 characters was not read"),
        (workflow("X", "x", nodes=[sticky('{"type": "array"}')]), "was not used, because it is not that of an object"),
        (
            workflow("X", "x", nodes=[sticky('{"properties": {"a": {"type": "wrong"}}}')]),
            "tool 'x' is skipped: Schema",
        ),
        (
            workflow("X", "x", nodes=[sticky('{"properties": {"a": {"pattern": "("}}}')]),
            "patterns of 'n8n.x' cannot be matched in bounded time and are not checked",
        ),
        (workflow("X", "a\ud800b"), "workflow 'X' is skipped: 'utf-8' codec can't encode"),
        (
            workflow(
                "X", "x", parameters={"responseMode": "onReceived"}, nodes=[sticky('```json output\n{"a": 1}\n```')]
            ),
            "tool 'x': it declares an output, but its Webhook node responds immediately; set its Respond to",
        ),
    ],
    ids=["path", "nodes", "note", "long note", "list", "schema", "pattern", "no bytes", "at once"],
)
async def test_errors_of_a_workflow_are_reported(one: Any, told: str) -> None:
    _, problems = await found_in(one)
    assert told in problems


async def test_a_configured_tool_that_fits_no_workflow_is_reported() -> None:
    others = [workflow(f"A {number}", f"a-{number}") for number in range(9)]
    _, problems = await found_in(*others, workflow("Flow"), options={"tools": {"flwo": {"description": "x"}}})
    assert "options.tools.flwo matches no active workflow; similar names: flow, " in problems


async def test_names_that_would_clash_are_distinguished_by_path_and_then_by_more() -> None:
    found, problems = await found_in(
        workflow("Pay", "a-b", id="1"),
        workflow("pay!", "a_b", id="2"),
        workflow("Pay", "a-b", id="3", parameters={"httpMethod": "GET"}),
    )
    assert len(found) == 3
    assert "n8n.pay_a_b_get" in found
    assert "n8n.pay" not in found
    assert "2 workflows are named 'Pay'" in problems


async def test_a_very_long_name_is_cut_and_stays_unique() -> None:
    found, _ = await found_in(workflow("x" * 5000, "a"), workflow("\u0000\u202e", "b"), workflow("", "c"))
    assert len(found) == 3
    assert all(len(name) <= 64 for name in found)


async def test_a_name_keeps_its_letters_as_far_as_they_have_a_plain_form() -> None:
    found, _ = await found_in(workflow("Größe der Straße", "a"))
    assert found == {"n8n.grosse_der_strasse"}


async def test_the_published_version_counts_and_not_the_draft() -> None:
    live = workflow("Flow", "live")["nodes"]
    async with Site(by_path(workflows=listing(workflow("Flow", "draft", activeVersion={"nodes": live})))) as site:
        async with box_of(site) as box:
            await box.call("n8n.flow", {})
        assert site.last.path == "/webhook/live"


@pytest.mark.parametrize(
    ("parameters", "node", "path"),
    [
        ({"path": ""}, {}, "/webhook/w-1"),
        ({"path": "/a b/"}, {}, "/webhook/a%20b"),
        ({"path": "x?y#z"}, {}, "/webhook/x%3Fy%23z"),
        ({"path": "//evil.example/x"}, {}, "/webhook/evil.example/x"),
        ({"path": "p"}, {"webhookId": None}, "/webhook/id-flow/webhook/p"),
    ],
    ids=["no path", "space", "question", "host", "no id"],
)
async def test_a_path_stays_below_the_webhooks_of_the_server(parameters: Any, node: Any, path: str) -> None:
    one = workflow("Flow", "flow", parameters=parameters, node=node)
    async with Site(by_path(workflows=listing(one))) as site:
        async with box_of(site) as box:
            await box.call("n8n.flow", {})
        assert site.last.path == path


@pytest.mark.parametrize("value", ["", "..", "a/b"])
async def test_a_value_that_would_lead_to_another_path_is_refused(value: str) -> None:
    async with Site(by_path(workflows=listing(workflow("Flow", "user/:id")))) as site:
        async with box_of(site) as box:
            outcome = await box.call("n8n.flow", {"id": value})
        assert len(site.requests) == 1
    assert outcome.error.error_code == "validation_failed"


async def test_a_base_url_says_where_the_webhooks_are() -> None:
    async with Site(listing(workflow())) as api, Site(said(200, {"ok": 1})) as hooks:
        async with box_of(api, base_url=f"{hooks.url}/n8n/") as box:
            outcome = await box.call("n8n.flow", {})
        assert hooks.last.path == "/n8n/webhook/flow"
    assert outcome.content == {"ok": 1}


# ---------------------------------------------------------------- calls


TRACE = "Error: boom\n    at run (/usr/lib/node_modules/n8n/dist/x.js:1:2)\n    at async /usr/lib/y.js:3:4"
ODD_TRACE = "boom\n    at async Promise.all (x.js 0)\n  at run (/a b/x.js:1:2)\n\tat /usr/y.js:10\nat new Foo (z.js)"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(said(500, {"code": 0, "message": "boom", "stacktrace": TRACE}), "server_error", id="beside"),
        pytest.param(said(500, {"message": TRACE}), "server_error", id="in the message"),
        pytest.param(said(500, {"stack": "/usr/lib/x.js said boom"}), "server_error", id="alone"),
        pytest.param(said(500, {"errors": [{"message": "boom", "stack": TRACE}, TRACE]}), "server_error", id="deep"),
        pytest.param(
            said(500, f"<pre>{TRACE}</pre>".encode(), **{"content-type": "text/html"}), "server_error", id="page"
        ),
        pytest.param(said(422, {"message": "Failed to parse", "stacktrace": TRACE}), "client_error", id="refused"),
        pytest.param(said(500, {"error": {"stackTrace": "in /usr/lib/x.js line 3"}}), "server_error", id="other case"),
        pytest.param(said(500, [{"message": ODD_TRACE}]), "server_error", id="list"),
        pytest.param(said(500, ODD_TRACE.encode(), **{"content-type": "text/plain"}), "server_error", id="text"),
        pytest.param(
            said(500, b"<pre>boom<br> &nbsp;at run (/a b/x.js:5)</pre>", **{"content-type": "text/html"}),
            "server_error",
            id="lines of a page",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["n8n", "plain"])
async def test_a_stack_trace_is_reported_to_no_one(answer: bytes, code: str, kind: str) -> None:
    site = Site(by_path(workflows=listing(), flow=answer))
    async with site, box_of(site, options={"kind": kind, "tools": {"flow": {"url": "webhook/flow"}}}) as box:
        outcome = await box.call("n8n.flow", {})
    assert outcome.error.error_code == code
    assert "answered " in str(outcome.error)
    assert ".js" not in json.dumps(outcome.error.to_dict())


PIECE, STOP = '{"type":"item","content":"%s"}', '{"type":"error","content":null}'


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (f"{PIECE % 'so '}\n{STOP}\n{PIECE % 'good'}\n", "so good"),
        (f"{PIECE % '[1,'}\n\n{PIECE % '2]'}\n", [1, 2]),
        ('{"type":"begin"}\n{"type":"item","content":null}\n{"type":"end"}\n', None),
        ('{"type":"item"}\n{"type":"other"}\n', [{"type": "item"}, {"type": "other"}]),
        ("plain words", "plain words"),
    ],
    ids=["goes on after an error", "JSON in pieces", "nothing", "no stream", "words"],
)
async def test_the_pieces_of_a_stream_are_put_together(body: str, content: Any) -> None:
    kind = "text/plain" if body == "plain words" else "application/json"
    answer = said(200, body.encode(), **{"content-type": kind})
    site = Site(by_path(workflows=listing(workflow(parameters={"responseMode": "streaming"})), flow=answer))
    async with site, box_of(site) as box:
        outcome = await box.call("n8n.flow", {})
    assert outcome.content == content


async def test_what_a_workflow_itself_did_not_find_is_not_taken_for_a_missing_webhook() -> None:
    site = Site(by_path(workflows=listing(workflow()), flow=said(404, {"message": "Ann is not registered for this"})))
    async with site, box_of(site) as box:
        outcome = await box.call("n8n.flow", {})
    assert outcome.error.error_code == "client_error"
    assert "answered 404 Not Found: Ann is not registered for this" in str(outcome.error)


async def test_a_workflow_that_never_answers_is_given_up() -> None:
    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        if "workflows" not in received.path:
            await asyncio.Event().wait()
        writer.write(listing(workflow()))

    slow = {"tools": {"flow": {"timeout_s": 0.2}}}
    async with Site(answer) as site, box_of(site, options=slow) as box:
        outcome = await box.call("n8n.flow", {})
    assert isinstance(outcome.error, ToolTimeoutError)
