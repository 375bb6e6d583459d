"""What the rows of the MCP figures are called, process by process: first the floor of each, then who runs beside it."""

from __future__ import annotations

FLOOR = "floor, by hand"
SESSION = "mcp 2.3 ClientSession"
CLIENT = "mcp 2.3 Client and server"
CALL_TOOL = "FastMCP 4.1 server.call_tool"
FASTMCP = "FastMCP 4.1 Client"
MEMORY = "Toolbox in memory"
SQLITE = "Toolbox on SQLite"

FLOOR_2 = "floor, in the process of these peers"
SESSION_2 = "mcp 2.3 ClientSession, there"
FASTMCP_2 = "FastMCP 4.1 Client, there"
OPENAI_AGENTS = "openai-agents MCPServer"
PYDANTIC_AI = "pydantic-ai MCPToolset"

FLOOR_1 = "floor, in the process of those on mcp 1"
SESSION_1 = "mcp 1.30 ClientSession"
MCP_USE = "mcp-use"
LANGCHAIN_HELD = "langchain-mcp-adapters, held session"
LANGCHAIN = "langchain-mcp-adapters, default"

OWN = (FLOOR, SESSION, CLIENT, CALL_TOOL, FASTMCP, MEMORY, SQLITE)
PEERS_2 = (FLOOR_2, SESSION_2, FASTMCP_2, OPENAI_AGENTS, PYDANTIC_AI)
PEERS_1 = (FLOOR_1, SESSION_1, MCP_USE, LANGCHAIN_HELD, LANGCHAIN)

OUTSIDE = tuple(name for name in (*OWN, *PEERS_2, *PEERS_1) if name not in (CLIENT, CALL_TOOL))
IN_PROCESS = (FLOOR, CLIENT, CALL_TOOL, FASTMCP, MEMORY, SQLITE, FLOOR_2, FASTMCP_2, PYDANTIC_AI)

SLOW = frozenset({LANGCHAIN})  # A session for every call: a fraction of the calls says enough.


def floor_of(name: str) -> str:
    """The floor that runs in the same process."""
    return next(process[0] for process in (OWN, PEERS_2, PEERS_1) if name in process)
