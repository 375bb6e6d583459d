"""Version 1 of the SDK, which most clients are built on."""

import asyncio
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client  # type: ignore[attr-defined] # gone in version 2

from tests.gateway.clients.told import say, told


def transport() -> Any:
    given = told()
    if given.command:
        return stdio_client(StdioServerParameters(command=given.command[0], args=given.command[1:]))
    return streamablehttp_client(given.address, headers=given.headers)


async def main() -> None:
    async with transport() as (receiving, sending, *_), ClientSession(receiving, sending) as session:
        await session.initialize()
        await say([tool.name for tool in (await session.list_tools()).tools], session.call_tool)


if __name__ == "__main__":
    asyncio.run(main())
