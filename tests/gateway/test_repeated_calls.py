"""A call that is repeated while it waits is one pending action, over REST, MCP and A2A, and between processes."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.program import child_environment, warm_command
from tests.gateway.mcp.test_tasks import request
from tests.gateway.running import furnish
from tests.gateway.serving import Served, served
from toolpost import tool

Era = Literal["auto", "legacy"]
GIVEN = {"name": "logs"}
dropped: list[str] = []


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    dropped.append(name)
    return f"{name} is gone"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    dropped.clear()
    async with served(tmp_path / "data", [drop]) as gate:
        yield gate


@asynccontextmanager
async def client_of(gate: Served, era: Era) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=gate.http.headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{gate.url}/mcp", http_client=http), mode=era) as client,
    ):
        yield client


async def waiting(gate: Served) -> list[str]:
    return [card["id"] for card in (await gate.http.get("/api/v1/pending")).json()["items"]]


async def approve(gate: Served, pending_id: str) -> None:
    await gate.http.post(f"/api/v1/pending/{pending_id}/answer", json={"decision": "approve"})


async def test_a_rest_caller_that_repeats_its_call_waits_for_the_same_answer(gate: Served) -> None:
    body, bot = {"tool": "drop", "arguments": GIVEN}, await gate.key("acme:bot", "call")
    post = gate.http.post
    replies = [await post("/api/v1/calls", json=body) for _ in range(2)]
    first, again = [reply.json() for reply in replies]
    later = (await post("/api/v1/calls", json={**body, "mode": "async"})).json()
    other = (await post("/api/v1/calls", json=body, headers=bot)).json()
    keyed = [
        (await post("/api/v1/calls", json=body, headers={"Idempotency-Key": key})).json()["pending"]["id"]
        for key in ("a", "b", "a")
    ]
    await approve(gate, first["pending"]["id"])
    outcome = (await gate.http.get(f"/api/v1/runs/{later['run_id']}/outcome")).json()

    assert first["pending"]["id"] == again["pending"]["id"]
    assert [reply.headers.get("Idempotent-Replayed") for reply in replies] == [None, "true"]
    assert len({first["pending"]["id"], other["pending"]["id"], *keyed}) == 4
    assert keyed[0] == keyed[2]
    assert (outcome["content"], dropped) == ("logs is gone", ["logs"])


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_an_mcp_client_that_repeats_its_call_waits_for_the_same_answer(gate: Served, era: Era) -> None:
    async with client_of(gate, era) as client:
        for _ in range(2):
            await client.session.call_tool("drop", GIVEN, allow_input_required=True)
        [pending_id] = await waiting(gate)
        await approve(gate, pending_id)
        result = await client.call_tool("pending_wait", {"pending_id": pending_id})

    assert (result.structured_content, dropped) == ({"result": "logs is gone"}, ["logs"])


async def test_two_sessions_of_the_older_protocol_ask_for_two_calls(gate: Served) -> None:
    for _ in range(2):
        async with client_of(gate, "legacy") as client:
            await client.call_tool("drop", GIVEN)

    assert len(await waiting(gate)) == 2


async def test_a_client_that_knows_tasks_repeats_its_call(gate: Served) -> None:
    body, headers = request("tools/call", name="drop", arguments=GIVEN)
    first, again = [(await gate.http.post("/mcp", json=body, headers=headers)).json()["result"] for _ in range(2)]
    [pending_id] = await waiting(gate)
    await approve(gate, pending_id)
    states = [one["requestState"] for one in (first, again)]
    results = [
        (
            await gate.http.post(
                "/mcp", json={**body, "params": {**body["params"], "requestState": state}}, headers=headers
            )
        )
        for state in states
    ]

    assert [one.json()["result"]["structuredContent"] for one in results] == [{"result": "logs is gone"}] * 2
    assert dropped == ["logs"]


async def test_an_agent_that_sends_its_message_again_in_a_context_has_one_task(gate: Served) -> None:
    async def send(message_id: str, context: str) -> Any:
        message = {
            "messageId": message_id,
            "role": "ROLE_USER",
            "parts": [{"data": {"tool": "drop", "arguments": GIVEN}}],
        }
        params = {"message": {**message, "contextId": context}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        return (await gate.http.post("/a2a", json=body)).json()["result"]["task"]

    first, again, other = await send("m1", "c1"), await send("m2", "c1"), await send("m3", "c2")

    assert (first["id"], first["contextId"]) == (again["id"], again["contextId"])
    assert other["contextId"] == "c2"
    assert len(await waiting(gate)) == 2


@pytest.mark.programs
async def test_commands_at_once_ask_a_person_once(tmp_path: Path) -> None:
    home = furnish(tmp_path)

    async def run(*words: str) -> Any:
        command = warm_command(*words, "--json")
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=home,
            env=child_environment(),
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
        )
        return json.loads((await process.communicate())[0])

    outcomes = await asyncio.gather(*(run("tools", "call", "local.drop", "name=logs") for _ in range(4)))
    [one] = await run("pending", "list")
    await run("pending", "approve", one["id"])

    assert {outcome["pending"]["id"] for outcome in outcomes} == {one["id"]}
    assert (home / "dropped").read_text() == "logs\n"
