"""CrewAI, by the resolver that its agents use; it puts the name of the server before those of the tools."""

import asyncio
import logging
import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai.mcp import MCPServerHTTP, MCPServerStdio
from crewai.mcp.tool_resolver import MCPToolResolver

from tests.gateway.clients.told import say, told


def server() -> Any:
    given = told()
    if given.command:
        return MCPServerStdio(command=given.command[0], args=given.command[1:])
    return MCPServerHTTP(url=given.address, headers=given.headers)


class Agent:
    """What the resolver reads of an agent."""

    verbose = False


def main() -> None:
    found = MCPToolResolver(Agent(), logging.getLogger("crewai")).resolve([server()])
    tools = {tool.original_tool_name: tool for tool in found}

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        return await tools[name]._run_async(**arguments)  # noqa: SLF001 - as its own `run` does, in a loop of its own

    asyncio.run(say(tools, call))


main()
