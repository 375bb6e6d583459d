"""FastMCP 4, which asks for the newest protocol first, then as a client of old."""

import asyncio
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

from tests.gateway.clients.told import say, told


def transport() -> Any:
    given = told()
    if given.command:
        return StdioTransport(given.command[0], given.command[1:], keep_alive=False)
    return StreamableHttpTransport(given.address, headers=given.headers)


async def main() -> None:
    async with Client(transport()) as newer:
        await say([tool.name for tool in await newer.list_tools()], newer.call_tool)
    async with Client(transport(), mode="legacy") as older:
        await say([tool.name for tool in await older.list_tools()], older.call_tool)


asyncio.run(main())
