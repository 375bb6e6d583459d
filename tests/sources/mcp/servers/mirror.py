"""An MCP server over HTTP that shows each caller what arrived with the call; the first line printed is its address.

Only the tokens in TOKENS are let in, if there are any.
"""

import hashlib
import os
import socket
from typing import Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers

server: FastMCP[Any] = FastMCP("mirror")


@server.tool(annotations={"readOnlyHint": True})
def headers() -> dict[str, str]:
    """The headers of this very request; a long token is taken out on its way back, so that its digest is there too."""
    given = get_http_headers(include_all=True)
    return {**given, "digest": hashlib.sha256(given.get("authorization", "").encode()).hexdigest()}


@server.resource("note://one")
def note() -> str:
    """A note."""
    return "a note"


@server.prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Say hello to {name}."


class Gate:
    """Lets requests with a known token through."""

    def __init__(self, app: Any, tokens: list[str]) -> None:
        self.app, self.tokens = app, tokens

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and self.tokens:
            given = dict(scope["headers"]).get(b"authorization", b"").decode()
            if given not in self.tokens:
                challenge = [(b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": challenge})
                await send({"type": "http.response.body", "body": b"who are you?"})
                return
        await self.app(scope, receive, send)


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    tokens = [f"Bearer {token}" for token in os.environ.get("TOKENS", "").split()]
    app = Gate(server.http_app(path="/mcp"), tokens)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
