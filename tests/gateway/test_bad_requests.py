"""Requests that are malformed, of no era, huge or abandoned: each is refused or ends, and the next one is served."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.gateway.serving import Served, add, served
from toolpost import ExternalToolConfig, ToolContext, TransportType, tool
from toolpost.gateway.mcp import sessions as mcp_sessions

NEW, OLD = "2026-07-28", "2025-06-18"
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
marks: dict[str, asyncio.Event] = {}  # of the test that runs


@tool(side_effects="pure")
async def hang() -> str:
    """Wait for ever."""
    marks["began"].set()
    try:
        await asyncio.Event().wait()
    finally:
        marks["ended"].set()
    return "never"


@tool(side_effects="pure")
async def chatter(ctx: ToolContext) -> str:
    """Report more than a client that reads nothing takes."""
    marks["began"].set()
    try:
        for number in range(2000):
            ctx.progress(f"{number} {'x' * 10_000}", fraction=number / 2000)
            await asyncio.sleep(0)
        return "told"
    finally:
        marks["ended"].set()


@tool(side_effects="pure")
async def late() -> str:
    """Come late."""
    return "late"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    marks.update(began=asyncio.Event(), ended=asyncio.Event())
    async with served(tmp_path / "data", [add, hang, chatter]) as gate:
        yield gate


def request(method: str, params: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **(params or {})}, **changed}


def headers_of(message: dict[str, Any]) -> dict[str, str]:
    name = (message.get("params") or {}).get("name")
    named = {} if name is None else {"Mcp-Name": name}
    return {**JSON, "MCP-Protocol-Version": NEW, "Mcp-Method": message["method"], **named}


CALL = request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})


async def assert_still_serves(gate: Served) -> None:
    answer = await gate.http.post("/mcp", json=CALL, headers=headers_of(CALL))
    assert answer.json()["result"]["structuredContent"] == {"result": 5}


NO_REQUESTS = {
    "nothing": b"",
    "half an object": b"{",
    "no UTF-8": b"\xff\xfe",
    "null": b"null",
    "a number": b"17",
    "an empty batch": b"[]",
    "a text": b'"hello"',
    "an empty object": b"{}",
    "another JSON-RPC": b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}',
    "an object for an id": b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}',
    "a number for a method": b'{"jsonrpc": "2.0", "id": 1, "method": 7}',
    "a list of parameters": b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}',
    "an answer": b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a long number": b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b', "method": "tools/list"}',
    "a batch of ten thousand": b"[" + b",".join([json.dumps(CALL).encode()] * 10_000) + b"]",
}


@pytest.mark.parametrize("version", [NEW, OLD, None])
async def test_what_is_no_request_is_refused(gate: Served, version: str | None) -> None:
    headers = JSON if version is None else {**JSON, "MCP-Protocol-Version": version, "Mcp-Method": "tools/list"}
    answers = {kind: await gate.http.post("/mcp", content=body, headers=headers) for kind, body in NO_REQUESTS.items()}

    assert {kind: code for kind, answer in answers.items() if not 400 <= (code := answer.status_code) < 500} == {}
    assert not any("Traceback" in answer.text for answer in answers.values())
    await assert_still_serves(gate)


WRONG: list[tuple[dict[str, Any], dict[str, str]]] = [
    (CALL, {"MCP-Protocol-Version": "1999-01-01"}),
    (CALL, {"MCP-Protocol-Version": OLD}),  # the older protocol has sessions, and this is none
    (CALL, {"MCP-Protocol-Version": OLD, "Mcp-Session-Id": "made-up"}),
    (CALL, {"MCP-Protocol-Version": OLD, "Content-Type": "text/plain"}),
    (CALL, {"Mcp-Method": "tools/list"}),
    (CALL, {"Mcp-Name": "hang"}),
    (CALL, {"Accept": "text/html"}),
    (request("tools/call", {"name": "add", "_meta": {}}), {}),
    (request("initialize"), {}),  # of the other era
    (request("no/such/method"), {}),
    (request("tools/call", {"name": ["add"]}), {"Mcp-Name": "add"}),
    (request("tools/call", {"name": "add", "arguments": "two and three"}), {}),
]


async def test_a_request_of_no_era_or_with_wrong_headers_is_refused(gate: Served) -> None:
    answers = [
        await gate.http.post("/mcp", json=message, headers={**headers_of(message), **changed})
        for message, changed in WRONG
    ]

    assert [answer.text for answer in answers if not 400 <= answer.status_code < 500] == []
    await assert_still_serves(gate)


async def test_other_methods_of_http_and_pages_of_other_sites_or_names_are_refused(gate: Served) -> None:
    methods = [
        await gate.http.request(method, "/mcp", headers={**JSON, "MCP-Protocol-Version": NEW})
        for method in ("PUT", "PATCH", "OPTIONS", "TRACE")
    ]
    pages = [
        await gate.http.post("/mcp", json=CALL, headers={**headers_of(CALL), **headers})
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"})
    ]

    assert [answer.status_code for answer in methods] == [405] * 4
    assert [answer.status_code for answer in pages] == [421, 403, 403]


async def test_a_wrong_token_gets_nothing_however_large_the_request(gate: Served) -> None:
    bearers = [b"", b"Bearer", b"Bearer wrong", b"Bearer " + b"x" * 10_000, b"Bearer \xff", b"Basic b2xnYTo="]
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        codes = [
            (
                await http.post(f"{gate.url}/mcp", content=b"x" * 1_000_000, headers={b"authorization": bearer})
            ).status_code
            for bearer in bearers
        ]

    assert codes == [401] * len(bearers)
    await assert_still_serves(gate)


@pytest.mark.parametrize("version", [NEW, OLD, None])
@pytest.mark.parametrize("chunked", [True, False])
async def test_fifty_megabytes_are_refused_as_soon_as_that_is_known(
    gate: Served, chunked: bool, version: str | None
) -> None:
    sent = 0

    async def many() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(50):
            sent += 1_000_000
            yield b"x" * 1_000_000

    length = {} if chunked else {"Content-Length": "50000000"}
    known = {} if version is None else {"MCP-Protocol-Version": version}
    session = within(await opened(gate, {}), {}) if version == OLD else {}
    headers = {**JSON, **length, **known, **session}
    try:
        answer = await gate.http.post("/mcp", content=many(), headers=headers)
    except httpx2.WriteError:  # it was still sending when the connection was closed
        pass
    else:
        assert answer.status_code == 413
    await assert_still_serves(gate)


@pytest.mark.parametrize("path", ["/mcp", "/api/v1/calls", "/a2a"])
@pytest.mark.parametrize("arguments", [b"[" + b"{}," * 130_000 + b"0]", b"[" * 150_000 + b"]" * 150_000])
async def test_a_body_with_more_values_than_may_be_decoded_is_refused(
    gate: Served, path: str, arguments: bytes
) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":' + arguments + b"}}"
    answer = await gate.http.post(path, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "message_too_large")
    assert (await gate.http.get("/healthz")).status_code == 200


async def sent(gate: Served, headers: dict[str, str], message: dict[str, Any]) -> asyncio.StreamWriter:
    """Send a request on a connection of its own, whose answer nobody reads."""
    body, port = json.dumps(message).encode(), int(urlsplit(gate.url).port or 0)
    own = {"Host": f"127.0.0.1:{port}", "Authorization": gate.http.headers["Authorization"]}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, **own, "Content-Length": len(body)}.items())
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    cast("asyncio.ReadTransport", writer.transport).pause_reading()
    writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
    return writer


@pytest.mark.parametrize("version", [NEW, OLD])
async def test_a_client_that_is_gone_during_its_call_leaves_nothing_behind(gate: Served, version: str) -> None:
    session = ""
    if version == OLD:
        session = (await opened(gate, {})).headers["Mcp-Session-Id"]
    message = request("tools/call", {"name": "hang", "arguments": {}})
    known = {"Mcp-Session-Id": session} if session else {}
    writer = await sent(gate, {**headers_of(message), "MCP-Protocol-Version": version, **known}, message)
    await marks["began"].wait()
    writer.close()
    if session:  # closing a stream is no cancellation in the older protocol; ending the session is
        await gate.http.delete("/mcp", headers={**JSON, "Mcp-Session-Id": session, "MCP-Protocol-Version": OLD})
    async with asyncio.timeout(30):
        await marks["ended"].wait()

    await assert_still_serves(gate)


async def opened(gate: Served, bearer: dict[str, str]) -> httpx2.Response:
    """Open a session of the older protocol."""
    hello = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    return await gate.http.post("/mcp", json=message, headers={**JSON, **bearer})


def within(session: httpx2.Response, bearer: dict[str, str]) -> dict[str, str]:
    """The headers of a request within a session."""
    return {**JSON, **bearer, "MCP-Protocol-Version": OLD, "Mcp-Session-Id": session.headers["Mcp-Session-Id"]}


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


async def test_of_a_caller_with_too_many_sessions_the_longest_idle_is_ended(
    gate: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "_MOST_OF_CALLER", 3)
    ann, bob = await gate.key("acme:ann", "call"), await gate.key("acme:bob", "call")
    foreign = await opened(gate, bob)
    sessions = [await opened(gate, ann) for _ in range(3)]
    assert (await gate.http.post("/mcp", json=LIST, headers=within(sessions[0], ann))).status_code == 200

    sessions.append(await opened(gate, ann))
    answers = [await gate.http.post("/mcp", json=LIST, headers=within(session, ann)) for session in sessions]

    assert [answer.status_code for answer in answers] == [200, 404, 200, 200]
    assert (await gate.http.post("/mcp", json=LIST, headers=within(foreign, bob))).status_code == 200


async def test_a_caller_whose_sessions_are_all_in_use_is_refused_another_and_others_are_not(
    gate: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "_MOST_OF_CALLER", 1)
    ann, bob = await gate.key("acme:ann", "call"), await gate.key("acme:bob", "call")
    session = await opened(gate, ann)
    async with gate.http.stream("GET", "/mcp", headers=within(session, ann)) as listening:
        refused, other = await opened(gate, ann), await opened(gate, bob)

        assert (listening.status_code, refused.status_code, other.status_code) == (200, 503, 200)
        assert "Too many open sessions" in refused.text


async def test_a_session_that_is_not_used_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_sessions, "_IDLE_S", 0.02)
    async with served(tmp_path / "data", [add]) as gate:
        session = await opened(gate, {})
        async with asyncio.timeout(30):
            while (await gate.http.post("/mcp", json=LIST, headers=within(session, {}))).status_code != 404:
                await asyncio.sleep(0.1)
        await assert_still_serves(gate)


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403), ({"Authorization": "Bearer no"}, 401)],
)
async def test_a_session_meets_the_same_checks_as_a_request_without_one(
    gate: Served, changed: dict[str, str], code: int
) -> None:
    headers = within(await opened(gate, {}), {})

    answers = [
        await gate.http.request(method, "/mcp", headers={**headers, **changed}, json=message)
        for method, message in (("POST", LIST), ("GET", None), ("DELETE", None))
    ]

    assert [answer.status_code for answer in answers] == [code] * 3
    assert (await gate.http.post("/mcp", json=LIST, headers=headers)).status_code == 200


async def until_news(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if "list_changed" in line:
            return


@pytest.mark.waits
async def test_a_client_that_reads_nothing_keeps_no_news_from_others(gate: Served) -> None:
    deaf, listener = within(await opened(gate, {}), {}), within(await opened(gate, {}), {})
    for session in (deaf, listener):  # told of changes from then on
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await gate.http.post("/mcp", json=ready, headers=session)).status_code == 202
    params = {"name": "chatter", "arguments": {}, "_meta": {"progressToken": 1}}
    writer = await sent(gate, deaf, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    async with asyncio.timeout(30):
        await marks["ended"].wait()

    async with asyncio.timeout(30), gate.http.stream("GET", "/mcp", headers=listener) as news:
        lines = news.aiter_lines()
        gate.box.registry.register(late)
        heard = [line async for line in until_news(lines)]
        gate.box.registry.unregister("late")
        heard += [line async for line in until_news(lines)]

    assert sum("notifications/tools/list_changed" in line for line in heard) == 2
    await assert_still_serves(gate)
    writer.close()


MORTAL = """
import json, pathlib, sys

here = pathlib.Path(__file__).parent
tool = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
tools = {"tools": [{"name": "die", **tool}, {"name": "live", **tool}]}
hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}

for line in sys.stdin:
    message = json.loads(line)
    method, called = message["method"], message.get("params", {}).get("name")
    if (method == "tools/list" and (here / "dies-at-lists").exists()) or called == "die":
        sys.exit(1)
    well = {"content": [{"type": "text", "text": "well"}]}
    result = {"initialize": hello, "tools/list": tools, "tools/call": well}.get(method)
    if "id" in message:
        said = {"error": {"code": -32601, "message": "what?"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""


def mortal(folder: Path) -> ExternalToolConfig:
    (folder / "mortal.py").write_text(MORTAL)
    command = shlex.join([sys.executable, str(folder / "mortal.py")])
    return ExternalToolConfig(name="mortal", transport=TransportType.MCP, connection=command, trust=True)


async def until_well(client: Client) -> None:
    """Call the server that died until it has been started again."""
    async with asyncio.timeout(60):
        while True:
            with suppress(MCPError):  # it is not in the catalog
                if "well" in str((await client.call_tool("mortal__live", {})).content):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.programs
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_server_that_dies_during_a_call_is_an_error_of_that_call_alone(tmp_path: Path, era: Any) -> None:
    async with (
        served(tmp_path / "data", [add], sources=[mortal(tmp_path)]) as gate,
        Client(streamable_http_client(f"{gate.url}/mcp", http_client=gate.http), mode=era) as client,
    ):
        await until_well(client)
        died = await client.call_tool("mortal__die", {})
        listed = {one.name for one in (await client.list_tools(cache_mode="refresh")).tools}
        added = await client.call_tool("add", {"a": 2, "b": 3})
        await until_well(client)

    assert died.is_error
    assert {"mortal__live", "mortal__die", "add"} <= listed
    assert added.structured_content == {"result": 5}


@pytest.mark.programs
async def test_a_server_that_dies_during_a_list_is_missing_until_it_lives(tmp_path: Path) -> None:
    (tmp_path / "dies-at-lists").touch()
    async with (
        served(tmp_path / "data", [add], sources=[mortal(tmp_path)]) as gate,
        Client(streamable_http_client(f"{gate.url}/mcp", http_client=gate.http)) as client,
    ):
        listed = {one.name for one in (await client.list_tools()).tools}
        added = await client.call_tool("add", {"a": 2, "b": 3})
        (tmp_path / "dies-at-lists").unlink()
        await until_well(client)

    assert "add" in listed
    assert "mortal__live" not in listed
    assert added.structured_content == {"result": 5}
