"""MCP servers of an agent: connected together, their tools in two registries, one that fails skipped.

Prints:
connected ['filesystem'], failed ['remote-tools']
[filesystem] List the open issues of a repository.
['home#1: the roof leaks', 'home#2: the door sticks']
both registries: 2 2
"""

import asyncio

from toolpost import ExternalToolConfig, MCPManager, ToolRegistry


async def main() -> None:
    """Connect, load the tools into both registries, call one and disconnect."""
    servers = [
        ExternalToolConfig(name="filesystem", transport="mcp", connection="memory:examples.servers:github"),
        ExternalToolConfig(name="remote-tools", transport="mcp", connection="http://127.0.0.1:9/sse"),
    ]
    manager = MCPManager()
    report = await manager.connect_all(servers)
    print(f"connected {report.connected}, failed {list(report.failed)}")
    main_agent, agent = ToolRegistry(), ToolRegistry()
    manager.load_tools(main_agent, agent)
    print(agent.specs()[0].description)
    result = await manager.call_tool("filesystem", "list_issues", {"repo": "home"})
    print(result.result["result"])
    print("both registries:", len(main_agent.list()), len(agent.list()))
    await manager.disconnect_all()


if __name__ == "__main__":
    asyncio.run(main())
