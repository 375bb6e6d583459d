"""Lists of tools that are encoded once: clients get what the SDK would have sent them, and nothing that is old."""

import gc
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, add, served
from toolpost import tool

NEW, OLD = "2026-07-28", "2025-06-18"
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@tool(side_effects="pure")
async def late() -> str:
    """A tool that came later."""
    return "hello"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [add]) as gate:
        yield gate


async def session_headers(gate: Served, **headers: str) -> dict[str, str]:
    hello = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
    opened = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    answer = await gate.http.post("/mcp", json=opened, headers={**JSON, **headers})
    session = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"], "MCP-Protocol-Version": OLD}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await gate.http.post("/mcp", json=ready, headers={**JSON, **headers, **session})
    return {**JSON, **headers, **session}


async def era_headers(gate: Served, era: str) -> dict[str, str]:
    newer = {**JSON, "MCP-Protocol-Version": NEW, "Mcp-Method": "tools/list"}
    return newer if era == NEW else await session_headers(gate)


def request(era: str, number: Any = 1, **more: Any) -> dict[str, Any]:
    params = {"params": {"_meta": META, **more}} if era == NEW or more else {}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/list", **params}


def message_of(answer: httpx2.Response) -> Any:
    """The message of an answer: a document, or the one event of a stream that has data."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.json()
    [data] = [line[5:] for line in answer.text.splitlines() if line.startswith("data:") and line[5:].strip()]
    return json.loads(data)


@pytest.mark.parametrize("era", [NEW, OLD])
async def test_a_list_that_was_encoded_is_the_one_that_the_sdk_sends(gate: Served, era: str) -> None:
    headers = await era_headers(gate, era)
    first, second, third = [
        message_of(await gate.http.post("/mcp", json=request(era, number), headers=headers)) for number in (1, "two", 3)
    ]

    assert first["result"] == second["result"] == third["result"]
    assert [message["id"] for message in (first, second, third)] == [1, "two", 3]
    assert "add" in {one["name"] for one in first["result"]["tools"]}


@pytest.mark.parametrize("era", [NEW, OLD])
async def test_a_list_is_encoded_again_once_the_catalog_has_changed(gate: Served, era: str) -> None:
    headers = await era_headers(gate, era)
    for _ in range(2):
        await gate.http.post("/mcp", json=request(era), headers=headers)
    gate.box.registry.register(late)
    names = [
        {
            one["name"]
            for one in message_of(await gate.http.post("/mcp", json=request(era), headers=headers))["result"]["tools"]
        }
        for _ in range(2)
    ]

    assert [("late" in found) for found in names] == [True, True]


async def test_a_session_of_another_caller_or_of_no_one_gets_no_list(gate: Served) -> None:
    own = await session_headers(gate)
    for _ in range(2):
        assert (await gate.http.post("/mcp", json=request(OLD), headers=own)).status_code == 200
    stranger = {**own, **await gate.key("beta:bot", "call")}
    made_up = {**own, "Mcp-Session-Id": "made-up"}
    await gate.http.delete("/mcp", headers=await session_headers(gate))
    codes = [
        (await gate.http.post("/mcp", json=request(OLD), headers=headers)).status_code
        for headers in (stranger, made_up)
    ]

    assert codes == [404, 404]


async def test_what_is_odd_is_answered_as_if_nothing_was_encoded(gate: Served) -> None:
    headers = await era_headers(gate, NEW)
    for _ in range(2):
        await gate.http.post("/mcp", json=request(NEW), headers=headers)
    odd = [
        (request(NEW), {**headers, "Mcp-Method": "tools/call"}),
        (request(NEW), {**headers, "Accept": "text/html"}),
        (request(NEW, cursor=7), headers),
        (request(NEW, number={}), headers),
        ({**request(NEW), "params": {}}, headers),
        ([request(NEW)], headers),
    ]
    codes = [(await gate.http.post("/mcp", json=body, headers=sent)).status_code for body, sent in odd]

    assert all(400 <= code < 500 for code in codes), codes


async def test_lists_that_are_asked_for_by_a_cursor_are_not_kept(gate: Served) -> None:
    headers, spec = await era_headers(gate, NEW), gate.box.registry.find("add").spec

    async def kept_after(lists: int) -> int:
        for _ in range(lists):
            await gate.http.post("/mcp", json=request(NEW, cursor="next"), headers=headers)
        gc.collect()  # what only a cycle holds is not kept
        return sum(isinstance(one, dict) for one in gc.get_referrers(spec))

    assert await kept_after(1) == await kept_after(20)
