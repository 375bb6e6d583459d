"""smolagents, which knows no event loop."""

import asyncio
from typing import Any

from mcp import StdioServerParameters
from smolagents import MCPClient

from tests.gateway.clients.told import say, told


def server() -> Any:
    given = told()
    if given.command:
        return StdioServerParameters(command=given.command[0], args=given.command[1:])
    return {"url": given.address, "headers": given.headers, "transport": "streamable-http"}


def main() -> None:
    with MCPClient(server(), structured_output=True) as found:
        tools = {tool.name: tool for tool in found}

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return tools[name](**arguments)

        asyncio.run(say(tools, call))


main()
