"""One MCP server: connect, list its tools, call one, and an error that says what failed.

Prints:
server.list_issues: List the open issues of a repository.
['home#1: the roof leaks', 'home#2: the door sticks']
MCPToolExecutionError: validation_failed
"""

import asyncio

from toolpost import MCPClient
from toolpost.errors import MCPToolExecutionError


async def main() -> None:
    """Use the server of this process; `connect` takes a URL or a command as well."""
    async with MCPClient() as client:
        await client.connect("memory:examples.servers:github")
        first = min(await client.list_tools(), key=lambda spec: spec.name != "server.list_issues")
        print(f"{first.name}: {first.description}")
        print((await client.call_tool("list_issues", {"repo": "home"}))["result"])
        try:
            await client.call_tool("list_issues", {})
        except MCPToolExecutionError as failed:
            print(f"{type(failed).__name__}: {failed.error_code}")


if __name__ == "__main__":
    asyncio.run(main())
