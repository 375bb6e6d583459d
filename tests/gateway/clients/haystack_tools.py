"""Haystack."""

import asyncio
from typing import Any

from haystack.utils import Secret
from haystack_integrations.tools.mcp import (
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
)

from tests.gateway.clients.told import say, told

PATIENCE_S = 120.0


def server() -> Any:
    given = told()
    if given.command:
        return StdioServerInfo(command=given.command[0], args=given.command[1:])
    return StreamableHttpServerInfo(url=given.address, token=Secret.from_token(given.token))


def main() -> None:
    toolset = MCPToolset(server(), connection_timeout=PATIENCE_S, invocation_timeout=PATIENCE_S, eager_connect=True)
    tools = {tool.name: tool for tool in toolset}

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        return tools[name].invoke(**arguments)

    asyncio.run(say(tools, call))
    toolset.close()


main()
