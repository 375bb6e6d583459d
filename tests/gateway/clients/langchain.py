"""langchain-mcp-adapters as it is by default: a session, and on stdio a process, for every call."""

import asyncio
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient  # type: ignore[import-not-found]

from tests.gateway.clients.told import say, told


def connection() -> dict[str, Any]:
    given = told()
    if given.command:
        return {"command": given.command[0], "args": given.command[1:], "transport": "stdio"}
    return {"url": given.address, "headers": given.headers, "transport": "streamable_http"}


async def main() -> None:
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"toolpost": connection()}).get_tools()}
    await say(tools, lambda name, arguments: tools[name].ainvoke(arguments))


asyncio.run(main())
