"""Limits hold over all workers of a gateway, at a real server that counts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.gateway.running import furnish, running

LIMIT, CALLS = 5, 60


class CountingServer:
    """An API that counts the requests that it serves concurrently; it serves none until there are `LIMIT`."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.connections = set[asyncio.Future[None]]()
        self._full = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now == LIMIT:
                self._full.set()
            await self._full.wait()
            await asyncio.sleep(0.005)  # a sixth request would come in this time
            self.now -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def counting() -> AsyncIterator[tuple[CountingServer, str]]:
    counter = CountingServer()
    async with await asyncio.start_server(counter.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield counter, f"http://127.0.0.1:{port}"
        await asyncio.gather(*counter.connections)  # their clients have ended


def api_of(url: str) -> str:
    operation = {"operationId": "work", "responses": {"200": {"description": "done"}}}
    document = {"openapi": "3.1.0", "info": {"title": "api", "version": "1"}, "paths": {"/work": {"get": operation}}}
    return json.dumps({**document, "servers": [{"url": url}]})


@pytest.mark.programs
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_four_workers_reach_a_limit_of_a_source_and_never_exceed_it(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url_of_database = request.getfixturevalue("postgres_url") if database == "postgres" else database
    async with counting() as (counter, url):
        source = f"{{name: api, transport: http, connection: ./api.json, max_concurrency: {LIMIT}, deadline_s: 60}}"
        home = furnish(tmp_path, config=f"builtins: none\ndatabase: {url_of_database}\nsources: [{source}]\n")
        (home / "api.json").write_text(api_of(url))
        with running(home, "--workers", "4", warm=False) as gateway:
            rest = gateway.address.replace("/mcp", "/api/v1")
            limits = httpx2.Limits(max_keepalive_connections=0)  # any worker accepts each connection
            async with httpx2.AsyncClient(headers=gateway.headers, timeout=60, limits=limits, trust_env=False) as http:
                call = {"tool": "api.work", "arguments": {}}
                replies = await asyncio.gather(*(http.post(f"{rest}/calls", json=call) for _ in range(CALLS)))

    assert {reply.status_code for reply in replies} == {200}
    assert counter.most == LIMIT
