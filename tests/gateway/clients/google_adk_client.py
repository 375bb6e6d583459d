"""Google's ADK."""

import asyncio
from typing import Any

from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters

from tests.gateway.clients.told import say, told

PATIENCE_S = 120.0


def connection() -> Any:
    given = told()
    if given.command:
        started = StdioServerParameters(command=given.command[0], args=given.command[1:])
        return StdioConnectionParams(server_params=started, timeout=PATIENCE_S)
    return StreamableHTTPConnectionParams(
        url=given.address, headers=given.headers, timeout=PATIENCE_S, sse_read_timeout=PATIENCE_S
    )


class Context:
    """What a tool reads of its context."""

    function_call_id = "call"
    tool_confirmation = None

    def __getattr__(self, name: str) -> Any:
        return None


async def main() -> None:
    toolset: Any = McpToolset(connection_params=connection())
    tools = {tool.name: tool for tool in await toolset.get_tools()}

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        return await tools[name].run_async(args=arguments, tool_context=Context())

    await say(tools, call)
    await toolset.close()


asyncio.run(main())
