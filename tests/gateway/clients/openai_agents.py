"""openai-agents."""

import asyncio
from typing import Any

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

from tests.gateway.clients.told import say, told

PATIENCE_S = 60.0  # it waits five seconds by default, in which a busy machine starts no program


def server() -> Any:
    given = told()
    if given.command:
        started = {"command": given.command[0], "args": given.command[1:]}
        return MCPServerStdio(started, client_session_timeout_seconds=PATIENCE_S)
    reached = {"url": given.address, "headers": given.headers, "timeout": PATIENCE_S}
    return MCPServerStreamableHttp(reached, client_session_timeout_seconds=PATIENCE_S)


async def main() -> None:
    async with server() as opened:
        await say([tool.name for tool in await opened.list_tools()], opened.call_tool)


asyncio.run(main())
