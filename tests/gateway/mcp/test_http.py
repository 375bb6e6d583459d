"""Requests of the newer protocol that are run where they arrive: clients get what the SDK's transport would send."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, add, served
from toolpost import ToolContext, tool
from toolpost.gateway.mcp import exchange

VERSION = "2026-07-28"
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


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [add, count, fail]) as gate:
        yield gate


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


async def in_two_parts(body: bytes) -> AsyncIterator[bytes]:
    yield body[:20]
    yield body[20:]


async def both_ways(gate: Served, message: Any, sent: dict[str, str]) -> tuple[httpx2.Response, httpx2.Response]:
    """The answers to a request that comes whole, and to one in parts, which the SDK's transport puts together."""
    body = json.dumps(message).encode()
    whole = await gate.http.post("/mcp", content=body, headers=sent)
    return whole, await gate.http.post("/mcp", content=in_two_parts(body), headers=sent)


def told(answer: httpx2.Response) -> tuple[int, str, str]:
    """What a client sees; ids of runs and calls differ."""
    text = answer.text
    for line in text.replace(",", "\n").splitlines():
        if '"toolpost/run_id"' in line:
            text = text.replace(line.split('"')[-2], "RUN")
    return answer.status_code, answer.headers["content-type"], text


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


async def test_a_request_is_answered_as_by_the_sdks_transport(gate: Served) -> None:
    answers = {what: await both_ways(gate, message, headers(message)) for what, message in REQUESTS.items()}

    for what, (whole, in_parts) in answers.items():
        assert told(whole) == told(in_parts), what


async def test_headers_that_do_not_agree_are_refused_as_by_the_sdks_transport(gate: Served) -> None:
    message = REQUESTS["a result"]
    odd = [
        {"Mcp-Method": "tools/list"},
        {"Mcp-Name": "count"},
        {"MCP-Protocol-Version": "2030-01-01"},
        {"Accept": "application/json"},
        {"Content-Type": "text/plain"},
    ]
    for sent in odd:
        whole, in_parts = await both_ways(gate, message, headers(message, **sent))

        assert whole.status_code >= 400, sent
        assert (whole.status_code, whole.content) == (in_parts.status_code, in_parts.content), sent


async def test_a_client_that_waits_long_is_told_that_its_call_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_PING_S", 0.01)
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
