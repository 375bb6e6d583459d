"""A FastMCP server in the client's own process: no pipe and no socket between them."""

from __future__ import annotations

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool(annotations={"readOnlyHint": True})
async def echo(message: str) -> str:
    """Say the message again."""
    return message
