"""Agno."""

import asyncio
import os
import shlex
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"

from agno.tools.mcp import MCPTools

from tests.gateway.clients.told import say, told

PATIENCE_S = 120


def server() -> Any:
    given = told()
    if given.command:
        return MCPTools(shlex.join(given.command), transport="stdio", timeout_seconds=PATIENCE_S)
    return MCPTools(url=given.address, transport="streamable-http", headers=given.headers, timeout_seconds=PATIENCE_S)


async def main() -> None:
    async with server() as opened:
        tools = opened.functions

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await tools[name].entrypoint(**arguments)

        await say(tools, call)


asyncio.run(main())
