"""Private parts of the MCP SDK: without one, calls and questions take the public way, and a warning says so once."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Literal, cast

import pytest
from fastmcp import Context, FastMCP
from mcp.client.client import Client
from mcp.server import MCPServer, Server
from mcp_types import ElicitRequestParams, ElicitResult

from tests.patient_settings import PatientSettings
from toolpost import Completed, ConfigError, ExternalToolConfig, Failed, Settings, Toolbox, ToolContext, tool
from toolpost.gateway.mcp.server import McpServer
from toolpost.sources.mcp.sdk_seam import Parts, lifespan_of, lowlevel_server

# ---------------------------------------------------------------- the installed version has every part


async def test_a_client_session_has_the_stamp_of_requests() -> None:
    async with Client(cast("Any", lowlevel_server(server()))) as client:
        stamped: dict[str, Any] = {}
        params: dict[str, Any] = {}
        Parts.STAMP.of(client.session)({"method": "tools/list", "params": params}, stamped)
    assert "_meta" in params or "headers" in stamped


async def test_a_request_of_a_client_has_its_channel_and_its_connection() -> None:
    found: list[Any] = []
    made: FastMCP[Any] = FastMCP("srv")

    @made.tool
    async def look(ctx: Context) -> str:
        found.extend([Parts.REQUEST_OUTBOUND.of(ctx.session), Parts.CONNECTION.of(ctx.session)])
        return "done"

    async with Client(cast("Any", lowlevel_server(made))) as client:
        await client.call_tool("look", {})
    outbound, connection = found
    assert callable(outbound.send_raw_request)
    assert callable(connection.notify)


@pytest.mark.parametrize("kind", [FastMCP, MCPServer])
async def test_a_server_object_has_its_low_level_server_and_its_lifespan(kind: Any) -> None:
    made = kind("srv")
    assert isinstance(lowlevel_server(made), Server)
    assert lowlevel_server(made) is not made
    async with lifespan_of(made)():
        pass
    assert hasattr(FastMCP("srv"), "_lifespan_manager")


# ---------------------------------------------------------------- without a part

NUMBERS = count()
LOGGER = "toolpost.sources.mcp.sdk_seam"


def remove(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Let a private part have a name that the SDK does not have, as if the SDK had renamed it."""
    name = f"_renamed_{next(NUMBERS)}"  # each is reported once
    monkeypatch.setattr(Parts, part, getattr(Parts, part)._replace(name=name))


def server() -> FastMCP[Any]:
    made: FastMCP[Any] = FastMCP("srv")

    @made.tool
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.report_progress(1, 2, "half")
        return a + b

    @made.tool
    def fail() -> str:
        raise ValueError("no luck today")

    @made.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    return made


def box(protocol: str, servers: Any = None) -> Any:
    source = ExternalToolConfig(
        name="srv", transport="mcp", connection="memory:x", required=True, options={"protocol": protocol}, timeout_s=30
    )
    settings = PatientSettings(data_dir=None, policy="exploratory", sources=[source])
    return Toolbox(settings=settings, servers={"srv": servers or server()})


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_calls_without_the_stamp_take_the_public_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    remove(monkeypatch, "STAMP")
    with caplog.at_level(logging.WARNING, LOGGER):
        async with box(protocol) as opened:
            added = [await opened.call("srv.add", {"a": 2, "b": number}) for number in range(3)]
            failed = await opened.call("srv.fail")
            gone = await opened.call("srv.hang", timeout_s=0.2)
            after = await opened.call("srv.add", {"a": 1, "b": 1})

    assert [one.content for one in added] == [{"result": 2}, {"result": 3}, {"result": 4}]
    assert isinstance(failed, Failed)
    assert "no luck today" in str(failed.error)
    assert isinstance(gone, Failed)
    assert isinstance(after, Completed)
    [said] = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert "has no RawSession._renamed_" in said
    assert "requests to MCP servers take the slower public way" in said


@tool(side_effects="pure")
async def book(ctx: ToolContext) -> str:
    """Book a table for as many as a person says."""
    return f"a table for {await ctx.pause('guests', {'prompt': 'How many guests?'})}"


@asynccontextmanager
async def gateway(**client: Any) -> AsyncGenerator[Client]:
    async with Toolbox(tools=[book], settings=Settings(data_dir=None)) as opened:
        gate = McpServer(opened, principal=lambda _ctx: "acme:ann", interactive=lambda _ctx: True)
        async with gate.publishing(), Client(gate.server, mode="legacy", **client) as connected:
            yield connected


async def eight(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": "eight"})


async def test_a_client_is_asked_by_public_methods_without_the_channel_of_its_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remove(monkeypatch, "REQUEST_OUTBOUND")
    with caplog.at_level(logging.WARNING, LOGGER):
        async with gateway(elicitation_callback=eight) as client:
            results = [await client.call_tool("book", {}) for _ in range(2)]

    assert [one.structured_content for one in results] == [{"result": "a table for eight"}] * 2
    assert len([record for record in caplog.records if record.name == LOGGER]) == 1


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_clients_are_served_without_their_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remove(monkeypatch, "CONNECTION")
    level: Literal["debug"] = "debug"
    with caplog.at_level(logging.WARNING, LOGGER):
        async with gateway(elicitation_callback=eight) as client:
            await client.set_logging_level(level)
            listed = await client.list_tools()
            result = await client.call_tool("book", {})

    assert "book" in {one.name for one in listed.tools}
    assert result.structured_content == {"result": "a table for eight"}
    [said] = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert "get no notifications of changes" in said


async def test_a_server_object_that_hides_its_server_is_refused_with_what_to_do() -> None:
    class Hidden:
        """A server of a library that Toolpost does not know."""

    with pytest.raises(ConfigError, match="start it as a command or by URL"):
        async with box("auto", Hidden()):
            pass
