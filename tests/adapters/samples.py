"""Tool values to store and to read back."""

from typing import Any

from toolpost.adapters import HTTPTool, MCPTool, PythonFunctionTool, ToolPort, WorkflowTool

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
URI = "http://127.0.0.1:9/mcp"

MCP = MCPTool("add", "Add two numbers.", SCHEMA, URI, "add")
MCP_WHOLE = MCPTool("søk", "", {}, URI, "search", SCHEMA, "string", "crm")
WORKFLOW = WorkflowTool(
    "clean", "Clean a table.", SCHEMA, b"\x00zip", [ToolPort("in", "rows", "table", {"x": "int"})], [ToolPort("out")], 1
)
BARE_WORKFLOW = WorkflowTool("bare", "", {})
HTTP = HTTPTool("pets", "List pets.", SCHEMA, "http://127.0.0.1:9/openapi.json", "listPets")
EMPTY_SCHEMA = MCPTool("none", "", {}, URI, "none", {})
FUNCTION = PythonFunctionTool("double", "Double it.", SCHEMA, "./tools.py", "double")
EVERY = [MCP, WORKFLOW, None, MCP_WHOLE, HTTP, BARE_WORKFLOW, FUNCTION, EMPTY_SCHEMA]
EVERY_MCP = [value for value in EVERY if isinstance(value, MCPTool)]
