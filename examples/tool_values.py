"""Tools as values of a table: two kinds in one column, stored by one factory, and what the old factories wrote.

Prints:
{'0': 'MCP', '1': 'translate', '2': 'Translate a text.', '8': 'http://127.0.0.1:8000/mcp', '9': 'translate'}
[('translate', 'MCP'), ('summarize', 'WORKFLOW'), None]
1 of 3 rows is a workflow
MCPToolValueFactory is deprecated, use ToolValueFactory instead
the same value: True
KnimeToolValueFactory true, KnimeWorkflowToolValueFactory false
"""

import asyncio
import re
import warnings
from importlib.resources import files

from toolpost.adapters import (
    MCPTool,
    MCPToolValueFactory,
    ToolType,
    ToolValueFactory,
    WorkflowTool,
    filter_tools,
    tool_table,
    tool_values,
)

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def main() -> None:
    """Store values cell by cell and as a column."""
    translate = MCPTool("translate", "Translate a text.", TEXT, "http://127.0.0.1:8000/mcp", "translate")
    summarize = WorkflowTool("summarize", "Summarize a text.", TEXT, b"a packed workflow")
    stored = ToolValueFactory().encode(translate) or {}
    print({field: stored[field] for field in ("0", "1", "2", "8", "9")})

    table = tool_table([translate, summarize, None])
    print([value and (value.name, value.tool_type.value) for value in tool_values(table["Tool"])])
    print(f"{filter_tools(table, ToolType.WORKFLOW).num_rows} of {table.num_rows} rows is a workflow")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        old = MCPToolValueFactory().encode(translate)
    print(warned[0].message)
    print("the same value:", ToolValueFactory().decode(old) == translate)

    plugin = files("toolpost.adapters.knime").joinpath("plugin.xml").read_text("utf-8")
    registered = re.findall(r'PythonClassName="(\w+)".*?isDefaultPythonRepresentation="(\w+)"', plugin, re.DOTALL)
    print(", ".join(f"{name} {default}" for name, default in registered))


if __name__ == "__main__":
    asyncio.run(main())
