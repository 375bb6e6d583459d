"""A REST call of a native tool beside a bare Starlette endpoint: one by one, and fifty at once, on the same server."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from bench.rest.gateways import start

_BARE = """
import asyncio
import json

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolpost.wire.http_server import listen, serve_until_stopped


async def call(request: Request) -> JSONResponse:
    given = (await request.json())["arguments"]
    return JSONResponse({"content": given["a"] + given["b"]})


with listen("127.0.0.1", 0) as socket:
    print(json.dumps({"port": socket.getsockname()[1]}), flush=True)
    app = Starlette(routes=[Route("/api/v1/calls", call, methods=["POST"])])
    asyncio.run(serve_until_stopped(app, socket))
"""
_TOOLS = '''
from toolpost import tool


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
_CONFIG = "builtins: none\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
_WARM_UP = 200


class Latencies(NamedTuple):
    """How long calls took, and how many a second there were."""

    p50_ms: float
    p99_ms: float
    per_second: float


async def measure(address: str, headers: dict[str, str], calls: int, at_once: int) -> Latencies:
    """Send so many calls, some at once, each on a connection that stays open."""
    body = json.dumps({"tool": "local.add", "arguments": {"a": 1, "b": 2}}).encode()
    taken: list[float] = []
    limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    sent = {"Content-Type": "application/json", **headers}
    async with httpx2.AsyncClient(headers=sent, limits=limits, timeout=60, trust_env=False) as http:

        async def send(times: int, into: list[float]) -> None:
            for _ in range(times):
                began = time.perf_counter()
                reply = await http.post(address, content=body)
                into.append(time.perf_counter() - began)
                assert reply.status_code == 200, reply.text

        await send(_WARM_UP, [])
        began = time.perf_counter()
        await asyncio.gather(*(send(calls // at_once, taken) for _ in range(at_once)))
        whole_s = time.perf_counter() - began
    percentiles = statistics.quantiles(taken, n=100)
    return Latencies(percentiles[49] * 1000, percentiles[98] * 1000, len(taken) / whole_s)


def compare(calls: int) -> list[dict[str, Any]]:
    """Return the figures of both servers, one by one and fifty at once."""
    with tempfile.TemporaryDirectory(prefix="toolpost-rest-") as folder:
        home = Path(folder)
        (home / "toolpost.yaml").write_text(_CONFIG)
        (home / "tools.py").write_text(_TOOLS)
        bare = subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True)
        gateway = start(home)
        assert bare.stdout is not None
        try:
            floor = f"http://127.0.0.1:{json.loads(bare.stdout.readline())['port']}/api/v1/calls"
            headers = {"Authorization": f"Bearer {gateway.token}"}
            found: list[dict[str, Any]] = []
            for at_once in (1, 50):
                below = asyncio.run(measure(floor, headers, calls, at_once))
                ours = asyncio.run(measure(f"{gateway.address}/calls", headers, calls, at_once))
                found.append({"at_once": at_once, "bare": below, "ours": ours})
            return found
        finally:
            gateway.kill()
            bare.kill()
            bare.wait()
            bare.stdout.close()
