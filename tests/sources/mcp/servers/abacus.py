"""A small MCP server of two eras: the library beside the interpreter that runs it decides.

FastMCP 4 serves the handshake and the stateless protocol, version 1 of `mcp` the handshake alone.

    abacus.py        over standard input and output
    abacus.py web    over HTTP, at /mcp and (SSE) at /sse; the first line printed is the address
"""

import importlib
import importlib.util
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

MODERN = importlib.util.find_spec("fastmcp") is not None
LIBRARY: Any = importlib.import_module("fastmcp" if MODERN else "mcp.server.fastmcp")
if TYPE_CHECKING:
    Context: TypeAlias = Any
else:
    Context = LIBRARY.Context

server: Any = LIBRARY.FastMCP("abacus")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def divide(a: float, b: float) -> float:
    """Divide one number by another; by nought is an error."""
    return a / b


@server.tool()
def speak(ctx: Context) -> dict[str, Any]:
    """Tell which revision of the protocol this call came by, and to which process."""
    request = ctx.request_context
    version = request.protocol_version if MODERN else request.session.client_params.protocolVersion
    return {"protocol": version, "pid": os.getpid()}


def web_app() -> Any:
    """Both HTTP transports in one application."""
    if MODERN:
        app, older = server.http_app(path="/mcp"), server.http_app(path="/sse", transport="sse")
    else:
        app, older = server.streamable_http_app(), server.sse_app()
    app.router.routes.extend(older.routes)
    return app


def serve_web() -> None:
    uvicorn = importlib.import_module("uvicorn")
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(web_app(), log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    serve_web() if sys.argv[1:] == ["web"] else server.run()
