"""Responses over streamable HTTP on a connection that is kept: whole, in pieces, broken off, or never."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.sources.mcp.rogues import toolbox
from toolpost import ExternalToolConfig, ToolError, TransportType

ECHO = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
WELCOME: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "by hand", "version": "1"},
}


class Server:
    """Answers every request in one write, except calls that say otherwise."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.gone = asyncio.Event()  # a connection ended while a call was waiting

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await self._head(reader):
                length = next((int(line[15:]) for line in head if line.startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                if head[0].startswith("post"):
                    await self._answer(json.loads(body), reader, writer)
                else:
                    writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> list[str]:
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        except asyncio.IncompleteReadError:
            return []

    async def _answer(self, message: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        params: dict[str, Any] = message.get("params") or {}
        how = params.get("arguments", {}).get("how", "whole")
        if how == "never":
            await reader.read()
            self.gone.set()
            return
        body = b"{" if how == "unreadable" else json.dumps(self._response(message)).encode()
        status = b"200 OK" if "id" in message else b"202 Accepted"
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        if how == "pieces":
            for piece in (head[:20], head[20:], body[:7], body[7:]):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        elif how == "broken":
            writer.write(head + body[:7])
            writer.close()
        else:
            writer.write(head + body)

    def _response(self, message: Any) -> dict[str, Any]:
        results: dict[str, Any] = {
            "initialize": WELCOME,
            "tools/list": {"tools": [ECHO]},
            "tools/call": {"content": [{"type": "text", "text": str(message.get("params"))}]},
        }
        answer = {"jsonrpc": "2.0", "id": message.get("id")}
        result = results.get(message["method"])
        return answer | ({"error": {"code": -32601, "message": "no"}} if result is None else {"result": result})


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[Server, Any]]:
    by_hand = Server()
    listening = await asyncio.start_server(by_hand.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    config = ExternalToolConfig(name="srv", transport=TransportType.MCP, connection=url, trust=True)
    async with listening, toolbox(config) as box:
        assert (await box.call("srv.echo", {"how": "whole"})).status == "completed"
        yield by_hand, box


@pytest.mark.parametrize("how", ["whole", "pieces"])
async def test_a_response_is_taken_in_however_it_comes(how: str) -> None:
    async with served() as (server, box):
        before = server.connections
        outcomes = [await box.call("srv.echo", {"how": how, "n": n}) for n in range(3)]
    assert [f"'n': {n}" in outcome.content for n, outcome in enumerate(outcomes)] == [True] * 3
    assert server.connections == before


@pytest.mark.parametrize("how", ["unreadable", "broken"])
async def test_a_response_that_is_none_fails_its_call_alone(how: str) -> None:
    async with served() as (_, box):
        failed, after = await box.call("srv.echo", {"how": how}), await box.call("srv.echo")
    assert isinstance(failed.error, ToolError)
    assert after.status == "completed"


async def test_a_call_that_runs_out_of_time_closes_its_connection() -> None:
    async with served() as (server, box):
        outcome = await box.call("srv.echo", {"how": "never"}, timeout_s=0.2)
        async with asyncio.timeout(5):
            await server.gone.wait()
        after = await box.call("srv.echo")
    assert outcome.status == "failed"
    assert after.status == "completed"
