"""Strands."""

import asyncio
from typing import Any

import httpx2
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from strands.tools.mcp import MCPClient

from tests.gateway.clients.told import say, told

PATIENCE_S = 120


def transport() -> Any:
    given = told()
    if given.command:
        return stdio_client(StdioServerParameters(command=given.command[0], args=given.command[1:]))
    return streamable_http_client(
        given.address, http_client=httpx2.AsyncClient(headers=given.headers, timeout=PATIENCE_S)
    )


def main() -> None:
    with MCPClient(transport, startup_timeout=PATIENCE_S) as client:
        tools = [tool.tool_name for tool in client.list_tools_sync()]

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await client.call_tool_async("call", name, arguments)

        asyncio.run(say(tools, call))


main()
