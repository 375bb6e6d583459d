"""The floor of an MCP call: by hand, for this one server, with no models, no policy and no limits.

Not a product, and standard library only, so that every environment of peers can run it too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from bench.mcp.endpoint import STDIO, command
from bench.mcp.server import PROTOCOL

LINE_LIMIT = 64 * 1024 * 1024


def request(number: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
    return json.dumps(message, separators=(",", ":")).encode()


def handshake() -> dict[str, Any]:
    return {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "floor", "version": "1"}}


class RawPipe:
    """A server on stdio: lines out, lines in, and whoever asked for an id gets its answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._out, self._in = process.stdin, process.stdout
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number = number = self._number + 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._out.write(request(number, method, params) + b"\n")
        return await answer

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return (await self.ask("tools/call", {"name": name, "arguments": arguments}))["result"]

    async def hear(self) -> None:
        while line := await self._in.readline():
            message = json.loads(line)
            self._asked.pop(message["id"]).set_result(message)


@asynccontextmanager
async def raw_pipe(command: Sequence[str]) -> AsyncGenerator[RawPipe]:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_LIMIT
    )
    pipe = RawPipe(process)
    hearing = asyncio.create_task(pipe.hear())
    try:
        await pipe.ask("initialize", handshake())
        yield pipe
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await hearing


class RawHttp:
    """A server over HTTP: connections are kept, and the last that was given back is taken first."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nMcp-Session-Id: bench\r\nContent-Length: "
        ).encode()
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._number = 0

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        body = request(self._number, method, params)
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        writer.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.index(b"Content-Length: ") + 16
        answer = await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
        self._free.append((reader, writer))
        return json.loads(answer)

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return (await self.ask("tools/call", {"name": name, "arguments": arguments}))["result"]

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def raw_http(url: str) -> AsyncGenerator[RawHttp]:
    http = RawHttp(url)
    try:
        await http.ask("initialize", handshake())
        yield http
    finally:
        await http.close()


def raw_client(target: str) -> AbstractAsyncContextManager[RawPipe | RawHttp]:
    """A client by hand on what was told."""
    return raw_pipe(command()) if target == STDIO else raw_http(target)
