"""A small MCP server, started by the tests as a program of its own."""

import os

from fastmcp import FastMCP

server = FastMCP("small")


@server.tool(annotations={"readOnlyHint": True})
def greet(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}!"


@server.tool
def has_token() -> bool:
    """Tell whether the token came through."""
    return os.environ.get("SMALL_TOKEN") == "s3cret-of-the-small-one"


if __name__ == "__main__":
    if os.environ.get("SMALL_TOKEN", "").startswith("wrong"):
        raise SystemExit(f"refused: {os.environ['SMALL_TOKEN']}")
    server.run(show_banner=False)
