"""From an MCP server to an agent by a table: one tool per row, with simple parameters only, then tools of LangChain.

Prints:
list_issues ['repo']
create_issue ['repo', 'title']
list_issues: success, ["home#1: the roof leaks","home#2: the door sticks"]
list_issues: error, .repo: expected string, got integer 7 (text must be quoted)
"""

import asyncio

from langchain_core.messages import ToolCall

from toolpost import Settings, Toolbox
from toolpost.adapters import LangchainToolConverter, extract_tools, tool_values, tools_table

SERVER = "memory:examples.servers:github"


async def main() -> None:
    """Provide the tools of a server as the node does, and call one as an agent of LangChain does."""
    table = await asyncio.to_thread(tools_table, SERVER, schema_profile="simple")
    for value in tool_values(table["Tool"]):
        if value is not None:
            print(value.name, list(value.parameter_schema["properties"]))

    async with Toolbox(settings=Settings(data_dir=None, policy="exploratory")) as box:
        converter = LangchainToolConverter(await extract_tools(table, box=box, servers=[SERVER]))
        by_name = {tool.name: tool for tool in converter.to_langchain_tools()}
        for arguments in ({"repo": "home"}, {"repo": 7}):
            call = ToolCall(name="list_issues", args=arguments, id="1", type="tool_call")
            said = await by_name["list_issues"].ainvoke(call)
            told = said.content.splitlines()
            print(
                f"{said.name}: {said.status}, {told[2] if said.status == 'success' else told[0].rpartition(': $')[2]}"
            )


if __name__ == "__main__":
    asyncio.run(main())
