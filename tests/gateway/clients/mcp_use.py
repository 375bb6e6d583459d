"""mcp-use."""

import asyncio
import os
from typing import Any

os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"  # read when it is imported; a test tells nobody that it runs

from mcp_use import MCPClient  # type: ignore[import-not-found]

from tests.gateway.clients.told import say, told


def server() -> dict[str, Any]:
    given = told()
    if given.command:
        return {"command": given.command[0], "args": given.command[1:]}
    return {"url": given.address, "headers": given.headers}


async def main() -> None:
    client = MCPClient({"mcpServers": {"toolpost": server()}})
    session = await client.create_session("toolpost")
    await say([tool.name for tool in await session.list_tools()], session.call_tool)
    await client.close_all_sessions()


asyncio.run(main())
