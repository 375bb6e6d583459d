"""A call that waits for a person outlives its gateway: retries in other processes complete it, exactly once."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client as FastMCPClient
from fastmcp.client.elicitation import ElicitResult as FastMCPElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, InputRequiredResult

from tests.cli.program import child_environment, warm_command
from tests.gateway.running import Gateway, furnish, running, serving

pytestmark = pytest.mark.programs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return furnish(tmp_path)


async def ask_nobody(context: Any, params: Any) -> ElicitResult:
    raise AssertionError("forms are filled in by hand here")


@asynccontextmanager
async def over_http(gateway: Gateway) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
        transport = streamable_http_client(gateway.address, http_client=http)
        async with Client(transport, elicitation_callback=ask_nobody) as client:
            yield client


@asynccontextmanager
async def over_stdio(home: Path) -> AsyncIterator[Client]:
    program, *arguments = serving(home)
    server = StdioServerParameters(command=program, args=arguments, env=child_environment())
    async with Client(stdio_client(server), elicitation_callback=ask_nobody) as client:
        yield client


async def killed_after_asking(home: Path, name: str, arguments: dict[str, Any]) -> InputRequiredResult:
    """Call a tool that asks a person, and kill the gateway as soon as it has said so."""
    with running(home, stopping=True) as gateway:
        async with over_http(gateway) as client:
            asked = await client.session.call_tool(name, arguments, allow_input_required=True)
        gateway.process.send_signal(signal.SIGKILL)
    assert isinstance(asked, InputRequiredResult)
    return asked


async def test_an_approval_after_kill_9_completes_the_retry_once_wherever_it_comes(home: Path) -> None:
    arguments = {"name": "logs"}
    asked = await killed_after_asking(home, "local__drop", arguments)
    approved = await asyncio.to_thread(
        subprocess.run,
        warm_command("pending", "approve", str(asked.request_state).partition("&")[0]),
        cwd=home,
        env=child_environment(),
        capture_output=True,
        check=True,
    )
    with running(home) as gateway:
        async with over_http(gateway) as web, over_stdio(home) as pipe:
            results = [
                await client.session.call_tool("local__drop", arguments, request_state=asked.request_state)
                for client in (web, pipe, web)
            ]

    assert b"logs is gone" in approved.stdout
    assert [result.structured_content for result in results] == [{"result": "logs is gone"}] * 3
    assert (home / "dropped").read_text() == "logs\n"


async def test_a_form_that_two_processes_get_at_once_is_handed_in_once(home: Path) -> None:
    asked = await killed_after_asking(home, "local__book", {})
    [question] = asked.input_requests or {}
    with running(home) as gateway:
        async with over_http(gateway) as web, over_stdio(home) as pipe:
            form = ElicitResult(action="accept", content={"value": "eight"})
            results = await asyncio.gather(
                *(
                    client.session.call_tool(
                        "local__book", {}, request_state=asked.request_state, input_responses={question: form}
                    )
                    for client in (web, pipe)
                )
            )

    assert [result.structured_content for result in results] == [{"result": "a table for eight"}] * 2
    assert (home / "booked").read_text() == "eight\n"


async def until_it_hangs(home: Path) -> None:
    while not (home / "hanging").exists():
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("surface", ["rest", "a2a"])
async def test_a_background_call_that_may_be_repeated_runs_again_when_its_gateway_was_killed(
    home: Path, surface: str
) -> None:
    data: dict[str, Any] = {"tool": "local.hang", "arguments": {}}
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"data": data}]}
    begin = {
        "rest": ("api/v1/calls", {**data, "mode": "async"}),
        "a2a": ("a2a", rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}})),
    }
    with running(home, stopping=True) as gateway:
        path, body = begin[surface]
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
            begun = (await http.post(gateway.address.replace("mcp", path), json=body)).json()
            await until_it_hangs(home)
        gateway.process.send_signal(signal.SIGKILL)

    (home / "hanging").unlink()
    with running(home) as gateway:
        await until_it_hangs(home)
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
            if surface == "rest":
                at = gateway.address.replace("mcp", f"api/v1/runs/{begun['run_id']}/outcome")
                told = (await http.get(at)).json()["status"]
            else:
                at, asked = gateway.address.replace("mcp", "a2a"), rpc("GetTask", {"id": begun["result"]["task"]["id"]})
                told = (await http.post(at, json=asked)).json()["result"]["status"]["state"]

    assert told in ("running", "TASK_STATE_WORKING")


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def accept(message: str, response_type: Any, params: Any, context: Any) -> Any:
    return FastMCPElicitResult(action="accept")


@asynccontextmanager
async def fastmcp_over(kind: str, home: Path) -> AsyncIterator[FastMCPClient[Any]]:
    with running(home) as gateway:
        program, *arguments = serving(home)
        transport = (
            StdioTransport(program, arguments, env=child_environment())
            if kind == "stdio"
            else StreamableHttpTransport(gateway.address, headers=gateway.headers)
        )
        async with FastMCPClient(transport, elicitation_handler=accept if kind == "http" else None) as client:
            yield client


@pytest.mark.parametrize("kind", ["http", "stdio"])
async def test_fastmcp_learns_that_its_call_waits_before_it_gives_up_and_the_call_runs_once(
    home: Path, kind: str
) -> None:
    with (home / "toolpost.yaml").open("a") as file:
        file.write("server: {pending_wait_s: 0.05}\n")
    async with fastmcp_over(kind, home) as client:
        told = await client.call_tool("local__drop", {"name": "logs"}, raise_on_error=False)
        pending_id = (told.meta or {})["toolpost/pending_id"]
        await asyncio.to_thread(
            subprocess.run,
            warm_command("pending", "approve", pending_id),
            cwd=home,
            env=child_environment(),
            capture_output=True,
            check=True,
        )
        result = await client.call_tool("pending_wait", {"pending_id": pending_id})

    assert f"call pending_wait with pending_id: {pending_id}" in str(told.content)
    assert result.structured_content == {"result": "logs is gone"}
    assert (home / "dropped").read_text() == "logs\n"
