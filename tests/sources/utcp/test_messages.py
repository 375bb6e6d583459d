"""Messages and contents: WebSocket, TCP, UDP, GraphQL, texts and files."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.sources.utcp.serving import App, in_file, manual, source, tool, toolbox
from tests.wire.site import Site, reply
from toolpost.errors import ToolConnectionError, ToolOutputError, ToolTimeoutError, ToolValidationError

pytestmark = pytest.mark.programs

TEXT = {"type": "string"}


async def called(template: dict[str, Any], arguments: dict[str, Any], outputs: Any = None, **options: Any) -> Any:
    one = tool("t", template, outputs=outputs or {})
    async with toolbox(source(manual(one), **options)) as box:
        assert box.problems == []
        return await box.call("m.t", arguments)


async def test_arguments_are_the_message_and_its_answer_is_the_result(app: App) -> None:
    template = app.websocket(response_format="json", protocol="chat", header_fields=["X-Left-Out"])

    outcome = await called(template, {"x": 1, "none": None, "X-Left-Out": None})

    assert outcome.content == {"said": '{"x":1,"none":null}', "authorization": None, "protocol": "chat"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("hello UTCP_ARG_who_UTCP_ARG", 'hello "a"'),
        ('{"to": "UTCP_ARG_who_UTCP_ARG"}', '{"to": "\\"a\\""}'),
        ({"to": ["UTCP_ARG_who_UTCP_ARG", 1]}, '{"to":["\\"a\\"",1]}'),
    ],
    ids=["text", "json", "data"],
)
async def test_a_message_has_places_that_a_value_cannot_leave(app: App, message: Any, said: str) -> None:
    outcome = await called(app.websocket(message=message, response_format="json"), {"who": '"a"'})

    assert outcome.content["said"] == said


async def test_a_message_without_its_argument_is_not_sent(app: App) -> None:
    outcome = await called(app.websocket(message="UTCP_ARG_who_UTCP_ARG"), {})

    assert isinstance(outcome.error, ToolValidationError)


@pytest.mark.req("GEN-06")
async def test_answers_of_calls_at_the_same_time_are_never_mixed_up(app: App) -> None:
    async with toolbox(source(manual(tool("t", app.websocket(response_format="json"))))) as box:
        outcomes = await asyncio.gather(*(box.call("m.t", {"x": number}) for number in range(8)))

    assert [outcome.content["said"] for outcome in outcomes] == [f'{{"x":{number}}}' for number in range(8)]


async def test_a_socket_is_opened_with_the_credential(app: App) -> None:
    auth = {"auth_type": "basic", "username": "a", "password": "b"}

    by_manual = await called(app.websocket(auth=auth, response_format="json"), {})
    by_source = await called(
        app.websocket(response_format="json"), {}, auth_type="bearer", auth_config={"token": "tok-1"}
    )

    assert by_manual.content["authorization"] == "Basic YTpi"
    assert by_source.content["authorization"] == "Bearer tok-1"


async def test_a_socket_that_closes_in_a_call_or_keeps_silent_is_reported(app: App) -> None:
    closed = await called(app.websocket(message="hang up"), {})
    silent = await called(app.websocket(message="silence", timeout=0.5), {})

    assert isinstance(closed.error, ToolConnectionError)
    assert isinstance(silent.error, ToolTimeoutError)


async def test_an_answer_that_is_not_the_json_it_should_be_is_reported(app: App) -> None:
    tools = [tool("t", {"call_template_type": "websocket", "url": app.address.replace("http", "ws") + "/echo"})]
    async with toolbox(source(manual(*tools))) as box:
        refused = await box.call("m.t", {})

    assert refused.status == "failed"


async def test_a_manual_is_asked_for_over_a_websocket(app: App) -> None:
    app.publish("ws", manual(tool("named", app.websocket(response_format="json")), {"name": "lent"}))
    connection = app.websocket()["url"]
    async with toolbox(source(connection)) as box:
        named = await box.call("m.named", {"a": 1})
        lent = await box.call("m.lent", {"a": 2})

    assert named.content["said"] == '{"a":1}'
    assert '{\\"a\\":2}' in lent.content


def tcp(app: App, **fields: Any) -> dict[str, Any]:
    return {"call_template_type": "tcp", "host": "127.0.0.1", "port": app.tcp, **fields}


def udp(app: App, **fields: Any) -> dict[str, Any]:
    return {"call_template_type": "udp", "host": "127.0.0.1", "port": app.udp, **fields}


@pytest.mark.parametrize(
    ("fields", "outputs", "answer"),
    [
        ({}, TEXT, 'got {"a":"x"}'),
        ({"request_data_format": "text"}, TEXT, "got x"),
        ({"request_data_format": "text", "request_data_template": "<UTCP_ARG_a_UTCP_ARG>"}, TEXT, "got <x>"),
        ({"framing_strategy": "delimiter", "message_delimiter": "\\n"}, TEXT, 'line: {"a":"x"}'),
        ({"framing_strategy": "length_prefix"}, {"type": "object"}, {"prefixed": True}),
        ({"framing_strategy": "fixed_length", "fixed_message_length": 5}, TEXT, "got {"),
        ({"max_response_size": 3}, TEXT, "got"),
    ],
    ids=["json", "text", "template", "delimiter", "prefix", "fixed", "most"],
)
async def test_a_connection_ends_its_message_as_the_manual_says(
    app: App, fields: dict[str, Any], outputs: Any, answer: Any
) -> None:
    outcome = await called(tcp(app, **fields), {"a": "x"}, outputs)

    assert outcome.content == answer


async def test_a_stream_that_stays_open_gives_what_came(app: App) -> None:
    outcome = await called(tcp(app, request_data_format="text", timeout=300), {"a": "stay"}, TEXT)

    assert outcome.content == "got stay"


async def test_datagrams_are_counted_and_joined(app: App) -> None:
    both = await called(udp(app, number_of_response_datagrams=2), {"a": 1}, TEXT)
    none = await called(udp(app, number_of_response_datagrams=0), {"a": 1}, TEXT)

    assert both.content == 'one {"a":1} two'
    assert none.content == ""


@pytest.mark.parametrize("template", [tcp, udp], ids=["tcp", "udp"])
async def test_an_answer_that_no_one_gave_is_reported_in_time(app: App, template: Any) -> None:
    outcome = await called(template(app, request_data_format="text", timeout=300), {"a": "silence"}, TEXT)

    assert isinstance(outcome.error, ToolTimeoutError)


async def test_a_field_that_cannot_be_right_is_reported_by_name(app: App) -> None:
    wrong: list[dict[str, Any]] = [
        {"framing_strategy": "fixed_length"},
        {"port": 0},
        {"response_byte_format": "klingon"},
    ]
    tools = [tool("ok", tcp(app)), *(tool(f"t{at}", tcp(app, **fields)) for at, fields in enumerate(wrong))]
    async with toolbox(source(manual(*tools))) as box:
        told = " ".join(box.problems)
        found = box.registry.has("m.ok")

    assert "fixed_message_length" in told
    assert "port" in told
    assert "'klingon' is not an encoding" in told
    assert found


def graphql(app: App, **fields: Any) -> dict[str, Any]:
    return {"call_template_type": "graphql", "url": f"{app.address}/graphql", **fields}


QUERY = "query Hello($name: String!) { hello(name: $name) }"


async def test_a_query_is_sent_as_it_is_with_the_arguments_as_variables(app: App) -> None:
    outcome = await called(graphql(app, query=QUERY), {"name": "Ann"})

    assert outcome.content == {"hello": "hello Ann", "query": QUERY}


async def test_a_variable_of_a_query_may_be_null() -> None:
    async with Site(reply(body=b'{"data": {"ok": true}}', content_type="application/json")) as site:
        template = {
            "call_template_type": "graphql",
            "url": site.url,
            "query": "mutation($due: Date) { set(due: $due) }",
        }
        await called(template, {"due": None})

    assert json.loads(site.last.body)["variables"] == {"due": None}


async def test_a_key_joins_the_query_that_the_address_has(app: App) -> None:
    auth = {"auth_type": "api_key", "api_key": "k", "var_name": "key", "location": "query"}
    async with Site(reply(body=b'{"data": {"ok": true}}', content_type="application/json")) as site:
        for scheme, kind in (("http", "graphql"), ("ws", "websocket")):
            url = f"{scheme}{site.url.removeprefix('http')}/at?v=1"
            await called({"call_template_type": kind, "url": url, "query": "{ ok }", "auth": auth}, {})

    assert [request.path for request in site.requests] == ["/at?v=1&key=k"] * 2


async def test_a_query_is_made_of_the_tools_name_where_none_is_given(app: App) -> None:
    outcome = await called(graphql(app, variable_types={"name": "String!"}), {"name": "Ann"})

    assert outcome.content["query"] == "query ($name: String!) { t(name: $name) }"


async def test_errors_without_data_are_a_failure_and_beside_it_a_remark(app: App) -> None:
    failed = await called(graphql(app, query=QUERY), {"name": "nobody"})
    half = await called(graphql(app, query=QUERY), {"name": "half"})

    assert "there is nobody of that name" in str(failed.error)
    assert half.content["hello"] == "hello half"
    assert "half of it is missing" in half.text


async def test_queries_read_and_mutations_do_not(app: App) -> None:
    tools = [
        tool("q", graphql(app, query=QUERY)),
        tool("m", graphql(app, operation_type="mutation")),
        tool("h", graphql(app, query="mutation { gone }")),
    ]
    async with toolbox(source(manual(*tools))) as box:
        effects = [box.registry.find(f"m.{name}").spec.side_effects for name in "qmh"]

    assert effects == ["read", "external", "external"]


async def test_something_else_than_a_graphql_answer_is_reported(app: App) -> None:
    outcome = await called({**graphql(app), "url": f"{app.address}/echo"}, {})

    assert isinstance(outcome.error, ToolOutputError)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"data": None}, "returned neither data nor errors"),
        ({"errors": []}, "returned neither data nor errors"),
        ({"data": None, "errors": [{}]}, "answered with errors: no reason given"),
        ({"data": None, "errors": [{"message": {"x": 1}}, None]}, 'answered with errors: {"x":1}; no reason given'),
    ],
    ids=["no data", "neither", "no message", "odd message"],
)
async def test_an_answer_of_graphql_that_says_nothing_is_a_failure(answer: dict[str, Any], told: str) -> None:
    async with Site(reply(body=json.dumps(answer).encode(), content_type="application/json")) as site:
        outcome = await called({"call_template_type": "graphql", "url": site.url, "query": "query { a }"}, {})

    assert told in str(outcome.error)


async def test_a_text_is_the_answer_with_every_dollar_in_it() -> None:
    outcome = await called({"call_template_type": "text", "content": "costs $5, see $ref and $CMD_0_OUTPUT"}, {})

    assert outcome.content == "costs $5, see $ref and $CMD_0_OUTPUT"


async def test_a_file_is_found_beside_its_manual(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"a": 1}')
    tools = [
        tool("text", {"call_template_type": "file", "file_path": "data.json"}),
        tool("data", {"call_template_type": "file", "file_path": "data.json"}, outputs={"type": "object"}),
        tool("gone", {"call_template_type": "file", "file_path": "gone.json"}),
    ]
    async with toolbox(source(in_file(tmp_path, manual(*tools)))) as box:
        text, data, gone = [await box.call(f"m.{name}", {}) for name in ("text", "data", "gone")]

    assert (text.content, data.content) == ('{"a": 1}', {"a": 1})
    assert "gone.json" in str(gone.error)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("declined", "mutation", "card declined"),
        ("declined", "query", "card declined"),
        ("half", "mutation", "half of it is missing. It also returned data, so it may have taken effect"),
        ("odd", "query", "boom"),
    ],
)
async def test_errors_of_graphql_are_a_failure_unless_a_query_gave_something(
    app: App, name: str, kind: str, says: str
) -> None:
    template = {"call_template_type": "graphql", "url": f"{app.address}/graphql", "operation_type": kind}

    outcome = await called({**template, "query": f"{kind}($name: String) {{ pay(name: $name) }}"}, {"name": name})

    assert outcome.error.error_code == "graphql_errors"
    assert says in str(outcome.error)


async def test_an_answer_that_came_is_not_lost_to_a_long_goodbye() -> None:
    async with serve(_says_hello_and_stays, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        template = {"call_template_type": "websocket", "url": f"ws://127.0.0.1:{port}/", "timeout": 0.8}
        outcome = await called(template, {}, TEXT)

    assert outcome.content == "hello"


async def _says_hello_and_stays(socket: ServerConnection) -> None:
    await asyncio.sleep(0.4)
    await socket.send("hello")
    socket.transport.pause_reading()
    await asyncio.sleep(2)
    socket.transport.abort()


async def test_an_answer_that_is_cut_says_so(app: App) -> None:
    template = {"call_template_type": "tcp", "host": "127.0.0.1", "port": app.tcp, "request_data_format": "text"}

    outcome = await called({**template, "max_response_size": 5}, {"x": "a long message"}, TEXT)

    assert outcome.content == "got a"
    assert "The answer continues; it is cut at 5 bytes." in outcome.text


async def test_a_cut_through_a_character_leaves_a_text(app: App) -> None:
    template = {"call_template_type": "tcp", "host": "127.0.0.1", "port": app.tcp, "request_data_format": "text"}

    outcome = await called({**template, "max_response_size": 6}, {"x": "a\N{EURO SIGN}"}, TEXT)

    assert outcome.content == "got a"


async def test_nor_are_bytes_cut_in_silence(app: App) -> None:
    template = {"call_template_type": "tcp", "host": "127.0.0.1", "port": app.tcp, "response_byte_format": None}

    outcome = await called({**template, "max_response_size": 5}, {"x": "a long message"})

    assert outcome.content["note"] == "The answer continues; it is cut at 5 bytes."


async def test_an_argument_cannot_begin_a_second_message(app: App) -> None:
    framing = {"framing_strategy": "delimiter", "message_delimiter": "\\n", "request_data_format": "text"}
    template = {"call_template_type": "tcp", "host": "127.0.0.1", "port": app.tcp, **framing}

    outcome = await called(template, {"key": "a\nFLUSHALL"}, TEXT)

    assert isinstance(outcome.error, ToolValidationError)


async def test_a_tcp_host_may_be_an_ipv6_address() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"six")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "::1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        outcome = await called({"call_template_type": "tcp", "host": "::1", "port": port}, {}, TEXT)

    assert outcome.content == "six"
