"""The floor of a gateway: a proxy by hand, with no policy, no limits and no record of anything.

`python -m bench.gateway.floor ADDRESS...` prints its own address and serves. Tools of several servers have the server's
number before their name; the list is read once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from bench.mcp.floor import RawHttp
from bench.mcp.http_server import http_answer, request_in


class Proxy:
    """Answers to the requests of one gateway."""

    def __init__(self, servers: dict[str, RawHttp], listed: bytes) -> None:
        self._servers = servers
        self._listed = listed

    async def answer(self, body: bytes) -> bytes:
        message = json.loads(body)
        number = json.dumps(message["id"]).encode()
        if message["method"] == "tools/list":
            return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, self._listed)
        params: dict[str, Any] = message["params"]
        server, _, name = params["name"].partition("__")
        result = await self._servers[server].call(name, params["arguments"])
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


async def serve(addresses: list[str]) -> None:
    servers = {f"u{number}": RawHttp(address) for number, address in enumerate(addresses)}
    tools = []
    for name, server in servers.items():
        listed = (await server.ask("tools/list"))["result"]["tools"]
        tools += [{**tool, "name": f"{name}__{tool['name']}"} for tool in listed]
    proxy = Proxy(servers, json.dumps({"tools": tools}, separators=(",", ":")).encode())

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting = b""
        while data := await reader.read(65536):
            waiting += data
            while (taken := request_in(waiting)) is not None:
                _, body, size = taken
                waiting = waiting[size:]
                writer.write(http_answer(b"200 OK", await proxy.answer(body)))

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(json.dumps({"mcp": f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # clients may still be connected


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
