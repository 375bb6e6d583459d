"""llama-index-tools-mcp."""

import asyncio
from typing import Any

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

from tests.gateway.clients.told import say, told

PATIENCE_S = 120


def client() -> Any:
    given = told()
    if given.command:
        return BasicMCPClient(given.command[0], args=given.command[1:], timeout=PATIENCE_S)
    return BasicMCPClient(given.address, headers=given.headers, timeout=PATIENCE_S)


async def main() -> None:
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client()).to_tool_list_async()}

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        return await tools[name].acall(**arguments)

    await say(tools, call)


asyncio.run(main())
