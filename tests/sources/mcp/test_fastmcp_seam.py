"""Every connection to an MCP server is opened by FastMCP's client, over a transport of FastMCP's kind."""

from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import ClientTransport

from tests.toolbox.signing_in import address, served
from toolpost import ExternalToolConfig, ToolNode, ToolRegistry


@pytest.mark.req("GEN-05")
async def test_servers_in_memory_and_over_http_are_reached_through_fastmcp(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    enter: Any = Client.__aenter__

    async def spy(client: Any) -> Any:
        opened.append(client.transport)
        return await enter(client)

    monkeypatch.setattr(Client, "__aenter__", spy)
    server: FastMCP[Any] = FastMCP("sums")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    with address() as (url, listening):
        async with served(server.http_app(path="/mcp"), listening):
            for connection in ("memory:server", f"{url}/mcp"):
                config = ExternalToolConfig(name="s", transport="mcp", connection=connection)
                given = server if connection.startswith("memory") else None
                async with ToolNode(config=config, registry=ToolRegistry(), server=given) as node:
                    assert await node.call("add", {"a": 1, "b": 2}) == {"result": 3}

    assert len(opened) >= 2
    assert all(isinstance(transport, ClientTransport) for transport in opened)
