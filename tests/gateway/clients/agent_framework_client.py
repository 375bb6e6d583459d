"""Microsoft's agent-framework."""

import asyncio
from typing import Any

from agent_framework import MCPStdioTool, MCPStreamableHTTPTool

from tests.gateway.clients.told import say, told


def server() -> Any:
    given = told()
    if given.command:
        return MCPStdioTool("toolpost", given.command[0], args=given.command[1:])
    return MCPStreamableHTTPTool("toolpost", given.address, static_headers=given.headers)


async def main() -> None:
    async with server() as opened:

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            result = await opened.call_tool(name, **arguments)
            return result if isinstance(result, str) else [content.to_dict() for content in result]

        await say([function.name for function in opened.functions], call)


asyncio.run(main())
