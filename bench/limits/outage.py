"""An outage of a server that eight processes call: requests that it gets, per call."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from bench.core.figures import Target
from bench.limits.process import CALLS_PER_S, Member

MOST = 1.1
_OUTAGES = {"every request fails": 1, "every third request fails": 3}


async def measure_outage(name: str, new: Callable[[], str], *, processes: int, seconds: float) -> list[Target]:
    """Call a server that is down, and one that fails every third request."""
    targets: list[Target] = []
    for outage, every in _OUTAGES.items():
        api = _Api(every)
        async with api.serving() as url:
            outcomes = await asyncio.to_thread(_call, new(), url, processes, seconds)
        calls = sum(count for outcome, count in outcomes.items() if outcome != "retries")
        print(f"{name}, {outage}: {calls} calls of {processes} processes, {api.requests} requests; {outcomes}")
        value = api.requests / calls
        targets.append(Target(f"{name}: requests per call while {outage}", value, "at most", MOST))
    return targets


def _call(database: str, url: str, processes: int, seconds: float) -> dict[str, int]:
    """Let all processes call the API, and add up their outcomes by error code."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        _write_document(Path(folder) / "api.json", url)
        members = [stack.enter_context(Member("call", database, Path(folder))) for _ in range(processes)]
        for member in members:
            member.await_ready()
        for member in members:
            member.go({"calls": int(seconds * CALLS_PER_S)})
        outcomes = Counter[str]()
        for member in members:
            outcomes.update(json.loads(member.result()))
    return dict(outcomes)


def _write_document(path: Path, url: str) -> None:
    operation = {"operationId": "work", "responses": {"200": {"description": "done"}}}
    document = {"openapi": "3.1.0", "info": {"title": "api", "version": "1"}, "paths": {"/work": {"get": operation}}}
    path.write_text(json.dumps({**document, "servers": [{"url": url}]}))


class _Api:
    """An API of which one request in `every` fails."""

    def __init__(self, every: int) -> None:
        self.requests = 0
        self._every = every

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serve at the address that is yielded."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            self.requests += 1
            head = "200 OK" if self.requests % self._every else "503 Service Unavailable"
            text = f"HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
            writer.write(text.encode())
        writer.close()
