"""A minimal JSON API by hand, so that what a server costs does not hide what a client costs.

`python -m bench.http.server` prints its address and serves one operation, an echo, and the document that
describes it. Requests have no body, connections are kept, and asyncio sets TCP_NODELAY on each of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import unquote_plus

ECHO = "echo"
DOCUMENT = "/openapi.json"
_PREFIX = f"/{ECHO}?message=".encode()


def document(url: str) -> dict[str, Any]:
    """What the API at this address offers, in OpenAPI."""
    message = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    operation = {
        "operationId": ECHO,
        "summary": "Say the message again.",
        "parameters": [{"name": "message", "in": "query", "required": True, "schema": {"type": "string"}}],
        "responses": {"200": {"description": "The message", "content": {"application/json": {"schema": message}}}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "bench", "version": "1"},
        "servers": [{"url": url}],
        "paths": {f"/{ECHO}": {"get": operation}},
    }


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, described: bytes) -> None:
        self._described = described
        self._waiting = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._waiting = (self._waiting + data).split(b"\r\n\r\n")
        for request in requests:
            self._transport.write(self._reply(request.split(b" ", 2)[1]))

    def _reply(self, path: bytes) -> bytes:
        if path.startswith(_PREFIX):
            message = unquote_plus(path[len(_PREFIX) :].decode())
            return _http(b"200 OK", json.dumps({"message": message}).encode())
        if path.partition(b"?")[0] == DOCUMENT.encode():
            return _http(b"200 OK", self._described)
        return _http(b"404 Not Found", b"{}")


def _http(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


async def serve() -> None:
    """Serve on a free port of loopback until stdin ends, so that no server outlives who started it."""
    loop = asyncio.get_running_loop()
    described = bytearray()
    server = await loop.create_server(lambda: Connection(bytes(described)), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    described += json.dumps(document(url)).encode()
    print(url, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
