"""Version 2 of the SDK: its client, which goes on with a call that waits, in the newer era and in the older."""

import asyncio
from typing import Any, Literal

import httpx2
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.gateway.clients.told import say, told

PATIENCE_S = 120
ERAS: tuple[Literal["auto", "legacy"], ...] = ("auto", "legacy")


def transport() -> Any:
    given = told()
    if given.command:
        return stdio_client(StdioServerParameters(command=given.command[0], args=given.command[1:]))
    http = httpx2.AsyncClient(headers=given.headers, timeout=PATIENCE_S)
    return streamable_http_client(given.address, http_client=http)


async def main() -> None:
    for era in ERAS:
        async with Client(transport(), mode=era) as client:
            await say([tool.name for tool in (await client.list_tools()).tools], client.call_tool)


asyncio.run(main())
