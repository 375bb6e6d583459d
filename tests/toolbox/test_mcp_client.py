"""MCPClient: one server and nothing else."""

import shlex

import pytest

from tests import warm
from tests.mcp.programs import mirror
from tests.toolbox.test_mcp_manager import ABACUS
from toolpost import (
    MCPClient,
    MCPClientError,
    MCPConnectionError,
    MCPToolExecutionError,
    ToolClientError,
    ToolConnectionError,
)


@pytest.mark.req("KMCP-01", "KMCP-03")
@pytest.mark.parametrize("where", ["remote", "local"])
async def test_a_server_is_connected_listed_and_called(where: str) -> None:
    with mirror() as url:
        async with MCPClient() as client:
            await client.connect(url if where == "remote" else shlex.join(warm.command(ABACUS)))
            names = [spec.name for spec in await client.list_tools()]
            called = "headers" if where == "remote" else "add"
            result = await client.call_tool(called, {} if where == "remote" else {"a": 1, "b": 2})
    assert f"server.{called}" in names
    assert result["host"] in url if where == "remote" else result == {"result": 3}


@pytest.mark.req("KMCP-04", "ERR-18")
async def test_what_goes_wrong_is_raised_as_the_clients_own_errors() -> None:
    async with MCPClient(connect_timeout_s=60) as client:
        with pytest.raises(MCPClientError, match="connect"):
            await client.list_tools()
        with pytest.raises(MCPConnectionError, match="cannot connect") as unreachable:
            await client.connect("http://127.0.0.1:9/mcp")
        await client.connect(shlex.join(warm.command(ABACUS)))
        with pytest.raises(MCPToolExecutionError, match="division") as failed:
            await client.call_tool("divide", {"a": 1, "b": 0})
        with pytest.raises(MCPToolExecutionError, match="not found"):
            await client.call_tool("subtract")
    assert isinstance(unreachable.value, ToolConnectionError)
    assert isinstance(failed.value.__cause__, ToolClientError)
    assert isinstance(failed.value, MCPClientError)
