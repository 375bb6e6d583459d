"""An MCP server that searches and reads, made with FastMCP.

librarian.py        over standard input and output
librarian.py web    over HTTP; the first line printed is the address
"""

import asyncio
import json
import os
import socket
import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from mcp.types import TextContent

server: Any = FastMCP("librarian")
PAGES = [
    {"title": "Tea & time", "url": "https://tea.example/", "content": "All about tea, the leaf that wasn't picked"},
    {"title": "Pots", "url": "https://pots.example/", "content": "Pots"},
    {"title": "Cups", "url": "https://cups.example/", "content": "Cups"},
]
READS = {"annotations": {"readOnlyHint": True}}


@server.tool(**READS)
def search(query: str, max_results: int = 2) -> list[dict[str, str]]:
    """Search; the list comes wrapped in an object."""
    return PAGES[:max_results]


@server.tool(**READS)
def search_documents(query: str) -> list[TextContent]:
    """Search; each result is a document of its own."""
    return [TextContent(type="text", text=json.dumps(page)) for page in PAGES[:2]]


@server.tool(**READS)
def search_words(query: str) -> str:
    """Search; results are written one below the other."""
    return "\n\n".join(f"Title: {one['title']}\nDescription: {one['content']}\nURL: {one['url']}" for one in PAGES[:2])


@server.tool(**READS)
def fetch(url: str) -> str:
    """Read a page, which is a long one."""
    return f"# {url}\n\n" + "tea " * 20_000 + "the end"


@server.tool(**READS)
def odd(query: str) -> dict[str, Any]:
    """Answer something else."""
    return {"error": {"message": "the index is being built"}}


@server.tool(**READS)
def empty(query: str) -> str:
    """Answer nothing."""
    return ""


@server.tool(**READS)
def broken(query: str) -> str:
    """Fail."""
    raise RuntimeError("the shelf fell over")


@server.tool(**READS)
async def slow(query: str) -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


@server.tool(**READS)
def gone(query: str) -> str:
    """Leave in the middle of a call."""
    os._exit(3)


@server.tool(annotations={"destructiveHint": True})
def burn(query: str) -> str:
    """Needs a person's word."""
    return query


def serve_web() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(server.http_app(path="/mcp"), log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    serve_web() if sys.argv[1:] == ["web"] else server.run(show_banner=False)
