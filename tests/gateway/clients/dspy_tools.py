"""DSPy over a session of the SDK, with the arguments checked by DSPy itself."""

import asyncio
from typing import Any

import dspy
from mcp import ClientSession

from tests.gateway.clients.mcp_1 import transport
from tests.gateway.clients.told import say


async def main() -> None:
    async with transport() as (receiving, sending, *_), ClientSession(receiving, sending) as session:
        await session.initialize()
        listed = (await session.list_tools()).tools
        tools = {tool.name: dspy.Tool.from_mcp_tool(session, tool) for tool in listed}

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await tools[name].acall(**arguments)

        await say(tools, call)


asyncio.run(main())
