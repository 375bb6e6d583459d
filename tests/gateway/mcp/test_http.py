"""Requests over HTTP: clients of both eras get what the SDK's transport would send them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from tests.gateway.serving import add, listening, served
from toolpost import Settings, Toolbox, ToolContext, tool
from toolpost.contracts.principal import Principal
from toolpost.gateway.access import CALLER, operator_caller
from toolpost.gateway.mcp import exchange
from toolpost.gateway.mcp.http import McpEndpoint
from toolpost.gateway.mcp.progress import ProgressRelay
from toolpost.gateway.mcp.server import McpServer

VERSION, OLD, OLDER = "2026-07-28", "2025-11-25", "2025-06-18"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@tool(side_effects="pure")
async def count(context: ToolContext) -> str:
    """Count aloud."""
    for number in (1, 2):
        context.progress(f"number {number}", fraction=number / 2)
    return "counted"


@tool(side_effects="pure")
async def fail() -> str:
    """Fail."""
    raise ValueError("no")


class Both:
    """One MCP server behind our endpoint, at `/own`, and behind the SDK's sessions, at `/sdk`."""

    def __init__(self, mcp: McpServer) -> None:
        self._own = McpEndpoint(mcp.server, call_tool=mcp.untraced_call)
        self._sdk = StreamableHTTPSessionManager(mcp.server)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._own.running(), self._sdk.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[CALLER] = operator_caller(Principal("acme", "ann"))
            await (self._own if scope["path"] == "/own" else self._sdk.handle_request)(scope, receive, send)


@asynccontextmanager
async def both_served() -> AsyncIterator[httpx2.AsyncClient]:
    relay = ProgressRelay()
    async with Toolbox(tools=[add, count, fail], settings=Settings(data_dir=None), sinks=[relay]) as box:
        mcp = McpServer(box, principal=lambda _ctx: "acme:ann", relay=relay)
        both = Both(mcp)
        async with mcp.publishing(), both.running(), listening(both) as url, httpx2.AsyncClient(base_url=url) as http:
            yield http


def request(method: str, **params: Any) -> dict[str, Any]:
    meta = {**META, **params.pop("_meta", {})}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def headers(message: dict[str, Any], **more: str) -> dict[str, str]:
    name = message["params"].get("name")
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": message["method"],
        **({"Mcp-Name": name} if name else {}),
        **more,
    }


async def both_ways(
    http: httpx2.AsyncClient, message: Any, sent: Mapping[str, str]
) -> tuple[httpx2.Response, httpx2.Response]:
    """Our answer to a request, and that of the SDK's transport."""
    body = json.dumps(message).encode()
    own = await http.post("/own", content=body, headers=sent)
    return own, await http.post("/sdk", content=body, headers=sent)


REQUESTS = {
    "a result": request("tools/call", name="add", arguments={"a": 1, "b": 2}),
    "progress": request("tools/call", name="count", _meta={"progressToken": 7}),
    "a failure": request("tools/call", name="fail"),
    "wrong arguments": request("tools/call", name="add", arguments={"a": "x"}),
    "no such tool": request("tools/call", name="nothing"),
    "no name": request("tools/call", arguments={}),
    "arguments that are no object": request("tools/call", name="add", arguments=[1]),
    "a state that nobody gave out": request("tools/call", name="add", arguments={}, requestState="x"),
    "what the server is": request("server/discover"),
    "no such method": request("tools/what"),
    "no such prompt": request("prompts/get", name="nothing"),
    "a level that is none": request("tools/call", name="add", _meta={"io.modelcontextprotocol/logLevel": "loud"}),
}


async def test_a_request_is_answered_as_by_the_sdks_transport() -> None:
    async with both_served() as http:
        answers = {what: await both_ways(http, message, headers(message)) for what, message in REQUESTS.items()}

        for what, (own, sdk) in answers.items():
            assert (own.status_code, own.headers["content-type"]) == (sdk.status_code, sdk.headers["content-type"]), (
                what
            )
            assert messages_of(own) == messages_of(sdk), what


async def test_headers_that_do_not_agree_are_refused_as_by_the_sdks_transport() -> None:
    async with both_served() as http:
        message = REQUESTS["a result"]
        odd = [
            {"Mcp-Method": "tools/list"},
            {"Mcp-Name": "count"},
            {"MCP-Protocol-Version": "2030-01-01"},
            {"Accept": "application/json"},
            {"Content-Type": "text/plain"},
        ]
        for sent in odd:
            own, sdk = await both_ways(http, message, headers(message, **sent))

            assert own.status_code >= 400, sent
            assert own.status_code == sdk.status_code, sent
            if sdk.headers.get("content-type") == "application/json":
                assert own.json()["error"] == sdk.json()["error"], sent


async def test_a_client_that_waits_long_learns_that_its_call_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_SILENT_S", 0.01)
    go_on, message = asyncio.Event(), request("tools/call", name="wait")

    @tool(side_effects="pure")
    async def wait() -> str:
        """Wait until the test lets it go on."""
        await go_on.wait()
        return "waited"

    async with (
        served(tmp_path / "data", [wait]) as gate,
        gate.http.stream("POST", "/mcp", json=message, headers=headers(message)) as answer,
    ):
        lines = answer.aiter_lines()
        first = await anext(lines)
        go_on.set()
        rest = [line async for line in lines]

    assert first == ": ping"
    assert json.loads(rest[-2].removeprefix("data: "))["result"]["content"][0]["text"] == "waited"


# ---------------------------------------------------------------- sessions


async def opened(http: httpx2.AsyncClient, path: str, version: str) -> tuple[dict[str, str], Any]:
    """Open a session; gives the headers of its requests, and what the server is."""
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    answer = await http.post(path, json=message, headers=usual)
    session = {**usual, "Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": version}
    await http.post(path, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
    return session, messages_of(answer)


def messages_of(answer: httpx2.Response) -> list[Any]:
    """The messages of a document or of a stream of events; ids of runs differ."""
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        messages = [json.loads(answer.text)] if answer.text else []
    else:
        data = [line.removeprefix("data:").strip() for line in answer.text.splitlines() if line.startswith("data:")]
        messages = [json.loads(one) for one in data if one]
    for message in messages:
        meta = message.get("result", {}).get("_meta", {})
        meta.pop("toolpost/run_id", None)
    return messages


def plain(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


IN_SESSION: dict[str, Any] = {
    "a list": plain("tools/list"),
    "a list without parameters": {"jsonrpc": "2.0", "id": "one", "method": "tools/list"},
    "a result": plain("tools/call", name="add", arguments={"a": 1, "b": 2}),
    "progress": plain("tools/call", name="count", _meta={"progressToken": 7}),
    "a failure": plain("tools/call", name="fail"),
    "wrong arguments": plain("tools/call", name="add", arguments={"a": "x"}),
    "no such tool": plain("tools/call", name="nothing"),
    "no name": plain("tools/call", arguments={}),
    "no such method": plain("tools/what"),
    "no such prompt": plain("prompts/get", name="nothing"),
    "a level": plain("logging/setLevel", level="debug"),
    "a level that is none": plain("logging/setLevel", level="loud"),
    "a ping": plain("ping"),
    "more members": {**plain("ping"), "more": 1},
    "a notification": {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
    "an unknown notification": {"jsonrpc": "2.0", "method": "notifications/what"},
    "a late response": {"jsonrpc": "2.0", "id": 99, "result": {}},
    "a late error": {"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "no"}},
    "a method of the newer era": plain("server/discover"),
    "initialize once more": plain(
        "initialize", protocolVersion=OLD, capabilities={}, clientInfo={"name": "x", "version": "1"}
    ),
}


@pytest.mark.parametrize("version", [OLD, OLDER])
async def test_a_message_in_a_session_is_answered_as_by_the_sdks_transport(version: str) -> None:
    async with both_served() as http:
        (own, own_hello), (sdk, sdk_hello) = [await opened(http, path, version) for path in ("/own", "/sdk")]
        assert own_hello == sdk_hello
        for what, message in IN_SESSION.items():
            answers = [
                await http.post(*at, json=message, headers=session) for *at, session in (("/own", own), ("/sdk", sdk))
            ]

            assert answers[0].status_code == answers[1].status_code, what
            assert messages_of(answers[0]) == messages_of(answers[1]), what


NOT_SERVED: dict[str, tuple[str, dict[str, str | None], Any]] = {
    "no session": ("POST", {"Mcp-Session-Id": None}, plain("ping")),
    "an unknown session": ("POST", {"Mcp-Session-Id": "made-up"}, plain("ping")),
    "an unknown version": ("POST", {"MCP-Protocol-Version": "1999-01-01"}, plain("ping")),
    "another kind": ("POST", {"Content-Type": "text/plain"}, plain("ping")),
    "no streams": ("POST", {"Accept": "application/json"}, plain("ping")),
    "a batch": ("POST", {}, [plain("ping"), plain("ping")]),
    "no message": ("POST", {}, {"jsonrpc": "2.0"}),
    "another JSON-RPC": ("POST", {}, {**plain("ping"), "jsonrpc": "1.0"}),
    "a stream of no session": ("GET", {"Mcp-Session-Id": None}, None),
    "a stream of an unknown session": ("GET", {"Mcp-Session-Id": "made-up"}, None),
    "a stream that is none": ("GET", {"Accept": "application/json"}, None),
    "the end of no session": ("DELETE", {"Mcp-Session-Id": None}, None),
    "the end of an unknown session": ("DELETE", {"Mcp-Session-Id": "made-up"}, None),
    "another method": ("PUT", {}, plain("ping")),
}


async def test_a_request_without_a_session_has_the_status_of_the_sdks_transport() -> None:
    async with both_served() as http:
        (own, _), (sdk, _) = [await opened(http, path, OLD) for path in ("/own", "/sdk")]
        codes: dict[str, list[int]] = {}
        for what, (method, changed, message) in NOT_SERVED.items():
            for path, session in (("/own", own), ("/sdk", sdk)):
                sent = {name: value for name, value in {**session, **changed}.items() if value is not None}
                answer = await http.request(method, path, json=message, headers=sent)
                codes.setdefault(what, []).append(answer.status_code)

        assert {what: both for what, both in codes.items() if both[0] != both[1] or both[0] < 400} == {}


async def test_a_session_that_was_ended_is_not_found() -> None:
    async with both_served() as http:
        for path in ("/own", "/sdk"):
            session, _ = await opened(http, path, OLD)
            ended = await http.delete(path, headers=session)
            after = await http.post(path, json=plain("ping"), headers=session)
            assert (ended.status_code, after.status_code) == (200, 404)
