"""Semantic Kernel."""

import asyncio
from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin
from semantic_kernel.functions import KernelArguments

from tests.gateway.clients.told import say, told


def plugin() -> Any:
    given = told()
    if given.command:
        return MCPStdioPlugin("toolpost", given.command[0], args=given.command[1:])
    return MCPStreamableHttpPlugin("toolpost", given.address, headers=given.headers)


async def main() -> None:
    async with plugin() as opened:
        kernel = Kernel()
        functions = kernel.add_plugin(opened).functions

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            result = await kernel.invoke(functions[name], KernelArguments(**arguments))
            return None if result is None else result.value

        await say(functions, call)


asyncio.run(main())
