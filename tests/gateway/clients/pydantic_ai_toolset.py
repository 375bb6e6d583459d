"""pydantic-ai, with its model for tests, which calls what it is told to."""

import asyncio
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from pydantic_ai import RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from tests.gateway.clients.told import say, told


def client() -> Any:
    given = told()
    if given.command:
        return Client(StdioTransport(given.command[0], given.command[1:], keep_alive=False))
    return Client(StreamableHttpTransport(given.address, headers=given.headers))


async def main() -> None:
    async with MCPToolset(client()) as opened:
        toolset: Any = opened
        context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
        known = await toolset.get_tools(context)

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await toolset.call_tool(name, arguments, context, known[name])

        await say(known, call)


asyncio.run(main())
