"""Agents of others over A2A: the SDK's own client, and what it would not send."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, add, served
from tests.parts import python_of_a2a
from toolpost import Completed, ToolContext, tool

dropped: list[str] = []


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    dropped.append(name)
    return name


@tool(side_effects="pure")
async def hang(ctx: ToolContext) -> str:
    """Wait for ever."""
    ctx.progress("half-way")
    await asyncio.Event().wait()
    return "never"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    dropped.clear()
    async with served(tmp_path / "data", [add, drop, hang]) as gate:
        yield gate


async def rpc(gate: Served, method: str, params: Any, headers: dict[str, str] | None = None) -> Any:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return (await gate.http.post("/a2a", json=body, headers=headers or {})).json()


def message(tool: str, arguments: dict[str, Any], message_id: str = "m1", **more: Any) -> dict[str, Any]:
    part = {"data": {"tool": tool, "arguments": arguments}}
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [part], **more}}


@pytest.mark.programs
@pytest.mark.req("FUT-03")
async def test_the_sdks_client_reads_the_card_calls_pauses_cancels_and_streams(gate: Served) -> None:
    bearer = (await gate.key("acme:bot", "call"))["Authorization"].removeprefix("Bearer ")
    client = Path(__file__).with_name("a2a_client.py")
    process = await asyncio.create_subprocess_exec(
        str(python_of_a2a()), str(client), gate.url, bearer, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    seen = json.loads(printed)

    task = seen["called"][-1]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"data": 5}]
    assert seen["paused"][-1]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert seen["approved"] == "UnsupportedOperationError"
    assert seen["found"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert seen["cancelled"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert seen["skills"] == ["call_tool", "add", "drop", "hang"]
    assert [next(iter(event)) for event in seen["streamed"]] == ["task", "artifactUpdate", "statusUpdate"]
    assert seen["streamed"][-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert dropped == []


async def test_a_task_continues_when_a_person_has_approved_it_elsewhere(gate: Served) -> None:
    bot = await gate.key("acme:bot", "call")
    paused = (await rpc(gate, "SendMessage", message("drop", {"name": "t"}, contextId="c1"), bot))["result"]["task"]
    pending_id = paused["status"]["message"]["parts"][1]["data"]["pending_id"]
    refused = await gate.http.post(f"/api/v1/pending/{pending_id}/answer", json={"decision": "approve"}, headers=bot)
    await gate.http.post(f"/api/v1/pending/{pending_id}/answer", json={"decision": "approve"})
    done = (await rpc(gate, "GetTask", {"id": paused["id"]}, bot))["result"]

    assert refused.status_code == 403
    assert (paused["contextId"], done["contextId"]) == ("c1", "c1")
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert dropped == ["t"]


async def test_a_message_that_comes_twice_is_one_call(gate: Served) -> None:
    first, again = [(await rpc(gate, "SendMessage", message("add", {"a": 1.0, "b": 2})))["result"] for _ in range(2)]
    other = await rpc(gate, "SendMessage", message("add", {"a": 5, "b": 5}))

    assert first["task"]["id"] == again["task"]["id"]
    assert first["task"]["artifacts"] == again["task"]["artifacts"]
    assert other["error"]["code"] == -32600


async def test_a_task_that_runs_is_followed_and_cancelled(gate: Served) -> None:
    begun = await rpc(gate, "SendMessage", {**message("hang", {}), "configuration": {"returnImmediately": True}})
    task_id = begun["result"]["task"]["id"]
    body = {"jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask", "params": {"id": task_id}}
    async with asyncio.timeout(60), gate.http.stream("POST", "/a2a", json=body) as reply:
        lines = [line.removeprefix("data: ") async for line in _until(reply.aiter_lines(), "half-way")]
        cancelled = await rpc(gate, "CancelTask", {"id": task_id})
    late = await rpc(gate, "CancelTask", {"id": task_id})

    assert begun["result"]["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert "half-way" in lines[-1]
    assert cancelled["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert late["error"]["code"] == -32002


async def _until(lines: AsyncIterator[str], text: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if text in line:
            return


async def test_the_task_of_another_tenant_or_agent_is_missing(gate: Served) -> None:
    own = await gate.key("acme:bot", "call")
    task = (await rpc(gate, "SendMessage", message("add", {"a": 1, "b": 2}), own))["result"]["task"]
    asked = {"id": task["id"]}
    strangers = [await gate.key(user, "call") for user in ("beta:bot", "acme:eve")]
    answers = [await rpc(gate, method, asked, one) for one in strangers for method in ("GetTask", "CancelTask")]
    missing = await rpc(gate, "GetTask", {"id": "ctx.task_none"}, own)

    assert {answer["error"]["code"] for answer in answers} == {missing["error"]["code"]} == {-32001}


async def test_the_card_is_open_and_says_nothing_of_the_catalog_and_tasks_need_a_caller(gate: Served) -> None:
    async with httpx2.AsyncClient(base_url=gate.url, trust_env=False) as stranger:
        card = (await stranger.get("/.well-known/agent-card.json")).json()
        refused = await stranger.post("/a2a", json={})
    answerer = await gate.http.post("/a2a", json={}, headers=await gate.key("acme:ann", "answer"))

    assert card["supportedInterfaces"][0]["url"] == f"{gate.url}/a2a"
    assert [skill["id"] for skill in card["skills"]] == ["call_tool"]
    assert (refused.status_code, answerer.status_code) == (401, 403)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "2.0", "method": "SendMessage", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "method": "SendMessage", "params": {"message": {"parts": [{"text": "hi"}]}}}', -32602),
        (b'{"jsonrpc": "2.0", "method": "message/send", "params": {}}', -32601),
        (b'{"jsonrpc": "2.0", "method": "CreateTaskPushNotificationConfig", "params": {}}', -32003),
        (b'{"jsonrpc": "2.0", "method": "GetTask", "params": {"id": 3}}', -32602),
    ],
)
async def test_what_is_no_request_is_refused_with_its_code(gate: Served, body: bytes, code: int) -> None:
    answer = await gate.http.post("/a2a", content=body)
    older = await gate.http.post("/a2a", content=body, headers={"A2A-Version": "0.3"})

    assert answer.json()["error"]["code"] == code
    assert older.json()["error"]["code"] in (code, -32009)
    assert isinstance(await gate.box.call("add", {"a": 1, "b": 1}), Completed)
