"""An MCP server whose tools a model calls.

Prints:
Discovered 2 GitHub tools
answer_complete: Two issues are open.
"""

import asyncio

from toolpost.compat.penguiflow.planner import ReactPlanner
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools import ExternalToolConfig, ToolNode, TransportType
from toolpost.testing import ScriptedModel, tool_calls


async def main() -> None:
    """Connect, count the tools and let the model use one."""
    registry = ModelRegistry()
    github = ToolNode(
        config=ExternalToolConfig(
            name="github",
            transport=TransportType.MCP,
            connection="memory:examples.servers:github",  # or "npx -y @modelcontextprotocol/server-github"
            env={"GITHUB_TOKEN": "ghp_example"},
            trust=True,  # the server may say that a tool only reads; else a person is asked
        ),
        registry=registry,
    )
    await github.connect()
    print(f"Discovered {len(github.get_tools())} GitHub tools")

    model = ScriptedModel(tool_calls(("github__list_issues", {"repo": "home"})), "Two issues are open.")  # or "gpt-4"
    async with ReactPlanner(catalog=[*github.get_tools()], llm=model, settings={"data_dir": None}) as planner:
        result = await planner.run("List open issues in my repo")
    print(f"{result.reason}: {result.payload['answer']}")
    await github.close()


if __name__ == "__main__":
    asyncio.run(main())
