"""More clients that nobody here wrote, and an app: `make test-clients` installs them in minutes, and runs this."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.cli.program import command
from tests.gateway.clients.trial import (
    HERE,
    PATIENCE_S,
    assert_works,
    client_home,
    client_key,
    environment_of,
    over_http,
    over_stdio,
    python_program,
)
from tests.gateway.running import Gateway, furnish, running, serving
from tests.parts import found, node24

pytestmark = pytest.mark.programs
CLIENTS = {  # the program of each, and the list of what its environment has
    "agent_framework_client": "agent_framework",
    "agno_client": "agno",
    "autogen_client": "autogen",
    "claude_agent": "claude_agent_sdk",
    "crewai_client": "crewai",
    "dspy_tools": "dspy",
    "google_adk_client": "google_adk",
    "haystack_tools": "haystack",
    "langchain": "mcp-1",
    "llama_index_client": "llama_index",
    "mcp_2": "",  # our own
    "mcp_use": "mcp-1",
    "openai_agents": "mcp-2",
    "pydantic_ai_toolset": "mcp-2",
    "semantic_kernel_plugin": "semantic_kernel",
    "smolagents_client": "smolagents",
    "strands_client": "strands",
    "typescript": "",
}


# Semantic Kernel puts the URI of a link, which is no text in the SDK, into a field for text.
RAISES_FOR_LINKS = {"semantic_kernel_plugin"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_home(tmp_path_factory.mktemp("home"), builtins="all")


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[Gateway]:
    with running(home) as started:
        yield started


def program_of(client: str) -> list[str]:
    if client == "typescript":
        return [str(node24()), str(HERE / f"{client}.mjs")]
    listed = CLIENTS[client]
    return python_program(environment_of(listed) if listed else Path(sys.executable), client)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_lists_calls_and_waits_over_http(home: Path, gateway: Gateway, client: str) -> None:
    links = client not in RAISES_FOR_LINKS
    assert_works(program_of(client), over_http(gateway, client_key(home)), home, takes_links=links)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_starts_serve_lists_calls_and_waits(home: Path, client: str) -> None:
    assert_works(program_of(client), over_stdio(home), home, takes_links=client not in RAISES_FOR_LINKS)


def inspect(home: Path, target: list[str], *method: str) -> Any:
    """Run the command line of the MCP Inspector; what it prints is JSON."""
    launcher = found(".parts/inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    told = [str(node24()), str(launcher), "--cli", *target, *method]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(told, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_inspector_finds_no_schema_that_clients_stumble_over(home: Path, gateway: Gateway) -> None:
    target = [gateway.address, "--header", f"Authorization: Bearer {gateway.token}"]
    listed = inspect(home, target, "--method", "tools/list", "--strict")

    assert {"local__add", "base64_encode"} <= {tool["name"] for tool in listed["tools"]}


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_the_inspector_calls(home: Path, gateway: Gateway, way: str) -> None:
    on_stdio = [*command("serve"), "--cwd", str(home)]  # it takes a --config for its own
    target = on_stdio if way == "stdio" else [gateway.address, "--header", f"Authorization: Bearer {gateway.token}"]
    call = ["--method", "tools/call", "--tool-name", "local__add", "--tool-arg", "a=2", "b=3"]

    assert inspect(home, target, *call)["structuredContent"] == {"result": 5}


async def seen(client: Client[Any], tool_name: str) -> tuple[Any, Any, Any]:
    """The `_meta` of a tool, the resource of its page, and the page."""
    tool = next(one for one in await client.list_tools() if one.name == tool_name)
    assert tool.meta is not None
    page = (await client.read_resource(tool.meta["ui"]["resourceUri"]))[0]
    return tool.meta, (await client.list_resources())[0].model_dump(), page.model_dump()


@pytest.mark.parametrize("front", ["auto", "legacy"])
async def test_an_app_from_npm_is_the_same_through_the_gateway(tmp_path: Path, front: str) -> None:
    program = found(".parts/apps/node_modules/@modelcontextprotocol/server-basic-vanillajs/dist/index.js")
    started = f"sources:\n  - {{name: clock, transport: mcp, connection: {node24()} {program} --stdio}}\n"
    furnish(tmp_path, config=started + "policy: exploratory\n")
    async with Client(StdioTransport(str(node24()), [str(program), "--stdio"]), mode=front) as client:
        meta, listed, page = await seen(client, "get-time")
    behind, *arguments = serving(tmp_path)
    async with Client(StdioTransport(behind, arguments), mode=front) as client:
        shown = await seen(client, "clock__get-time")
        told = await client.call_tool("clock__get-time", {})

    uri, ours = meta["ui"]["resourceUri"], f"ui://clock/{meta['ui']['resourceUri'].removeprefix('ui://')}"
    assert shown[0] == json.loads(json.dumps(meta).replace(uri, ours))
    assert shown[1:] == ({**listed, "uri": ours}, {**page, "uri": ours})
    assert page["mime_type"] == "text/html;profile=mcp-app"
    assert not told.is_error
