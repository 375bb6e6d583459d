"""A client of gateways by hand, of the newer protocol or with a session, so that what a client costs hides nothing."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any
from urllib.parse import urlsplit

NEWER, OLDER = "2026-07-28", "2025-06-18"
INFO = {"name": "bench", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEWER,
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_LIMIT = 16 * 1024 * 1024  # a list of thousands of tools is read at once
_ACCEPT = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RawClient:
    """Requests over connections that are kept; the last that was given back is taken first."""

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        self._head = f"{parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{bearer}{_ACCEPT}"
        self._session = ""
        self._numbers = count(1)  # of requests: within a session no two under way may have the same
        self._free: list[Stream] = []
        self._streams: list[Stream] = []

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result."""
        answer = await self.post("tools/call", {"name": name, "arguments": arguments}, name)
        result: dict[str, Any] = json.loads(_last_event(answer) if self._session else answer)["result"]
        return result

    async def post(self, method: str, params: dict[str, Any] | None = None, name: str = "") -> bytes:
        """Send one request and return the body of the answer."""
        envelope = {} if self._session else {"_meta": META}
        given = {**(params or {}), **envelope}
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": given}
        if self._session:
            return await self._exchange(message, f"MCP-Protocol-Version: {OLDER}\r\n{self._session}")
        named = f"Mcp-Name: {name}\r\n" if name else ""
        return await self._exchange(message, f"MCP-Protocol-Version: {NEWER}\r\nMcp-Method: {method}\r\n{named}")

    async def open_session(self) -> None:
        """Become a client of old: initialize, and listen for what the server says by itself."""
        hello = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": INFO}
        await self._exchange({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}, "")
        await self._exchange({"jsonrpc": "2.0", "method": "notifications/initialized"}, self._session)
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=_LIMIT)
        writer.write(f"GET {self._head}{self._session}\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        self._streams.append((reader, writer))

    async def _exchange(self, message: dict[str, Any], headers: str) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        reader, writer = await self._connection()
        writer.write(f"POST {self._head}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = await _body(head, reader)
        self._free.append((reader, writer))
        if not head.startswith((b"http/1.1 200", b"http/1.1 202")):
            raise RuntimeError(f"{message['method']} was refused: {head.decode()}{answer.decode()}")
        if b"\r\nmcp-session-id: " in head:
            self._session = f"Mcp-Session-Id: {_value(head, b'mcp-session-id').decode()}\r\n"
        return answer

    async def _connection(self) -> Stream:
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()  # servers close what was idle for long
        return await asyncio.open_connection(self._host, self._port, limit=_LIMIT)

    @property
    def session_headers(self) -> dict[str, str]:
        """The header of the session, for requests that others send."""
        name, _, value = self._session.strip().partition(": ")
        return {name: value} if name else {}

    def close(self) -> None:
        """Close all connections."""
        for _, writer in (*self._free, *self._streams):
            writer.close()


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    if b"\r\ncontent-length: " in head:
        return await reader.readexactly(int(_value(head, b"content-length")))
    if b"\r\ntransfer-encoding: chunked" not in head:
        return b""
    whole = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        whole += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return whole


def _last_event(stream: bytes) -> bytes:
    """The data of the last event, where the answer is a stream of them."""
    return stream.rpartition(b"data: ")[2]


def _value(head: bytes, name: bytes) -> bytes:
    at = head.index(b"\r\n%b: " % name) + len(name) + 4
    return head[at : head.index(b"\r\n", at)]
