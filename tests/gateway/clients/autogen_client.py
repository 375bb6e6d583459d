"""AutoGen, which makes a pydantic model of every tool and sends null for what is left out."""

import asyncio
from typing import Any

from autogen_core import CancellationToken
from autogen_ext.tools.mcp import (
    StdioServerParams,
    StreamableHttpServerParams,
    mcp_server_tools,
)

from tests.gateway.clients.told import say, told

PATIENCE_S = 120


def server() -> Any:
    given = told()
    if given.command:
        return StdioServerParams(command=given.command[0], args=given.command[1:], read_timeout_seconds=PATIENCE_S)
    return StreamableHttpServerParams(
        url=given.address, headers=given.headers, timeout=PATIENCE_S, sse_read_timeout=PATIENCE_S
    )


async def main() -> None:
    tools = {tool.name: tool for tool in await mcp_server_tools(server())}

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        result = await tools[name].run_json(arguments, CancellationToken())
        return tools[name].return_value_as_string(result)

    await say(tools, call)


asyncio.run(main())
