"""The memory of a gateway under load for minutes: calls of all kinds, listeners, and MCP clients."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import psutil

from bench.rest.gateways import Gateway, start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_CONFIG = "builtins: none\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
_TOOLS = '''
from toolpost import ToolContext, tool


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    return name


@tool(side_effects="pure")
async def fail() -> str:
    """Fail."""
    raise ValueError("no luck today")


@tool(side_effects="read")
async def large(number: int, ctx: ToolContext) -> str:
    """Return more than fits into an outcome, and report progress."""
    ctx.progress("half", fraction=0.5)
    return f"{number} " * 20_000
'''
_MCP_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol"
_ACCEPT = {"Accept": "application/json, text/event-stream"}
_SAMPLE_S = 1.0


class Growth(NamedTuple):
    """How the memory of the process changed: megabytes at samples, and how steep the second half is."""

    megabytes: list[float]
    calls: int
    seconds: float

    @property
    def second_half(self) -> list[float]:
        return self.megabytes[len(self.megabytes) // 2 :]

    @property
    def slope(self) -> float:
        """Megabytes a minute in the second half, when caches are full; the median of all pairs (Theil and Sen)."""
        half, minutes = self.second_half, _SAMPLE_S / 60
        pairs = itertools.combinations(range(len(half)), 2)
        return statistics.median((half[b] - half[a]) / ((b - a) * minutes) for a, b in pairs)


def measure(seconds: float) -> Growth:
    """Load a gateway for so long, and sample its resident memory every second."""
    with tempfile.TemporaryDirectory(prefix="toolpost-memory-") as folder:
        home = Path(folder)
        (home / "toolpost.yaml").write_text(_CONFIG)
        (home / "tools.py").write_text(_TOOLS)
        gateway = start(home)
        try:
            return asyncio.run(_load(gateway, seconds))
        finally:
            gateway.kill()


async def _load(gateway: Gateway, seconds: float) -> Growth:
    until = time.monotonic() + seconds
    process, samples = psutil.Process(gateway.pid), list[float]()
    headers = {"Authorization": f"Bearer {gateway.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        client = _Client(gateway, http, until)
        kinds = [
            *(client.call, client.pause_and_answer, client.fail, client.keep_and_read, client.collect),
            *(client.listen, client.call_by_mcp, client.open_a_session),
        ]

        async def repeat(kind: Callable[[int], Awaitable[None]]) -> None:
            for number in itertools.count():
                if time.monotonic() >= until:
                    return
                await kind(number)

        async with asyncio.TaskGroup() as tasks:
            for kind in kinds:
                tasks.create_task(repeat(kind))
            while time.monotonic() < until:
                samples.append(process.memory_info().rss / 1e6)
                await asyncio.sleep(_SAMPLE_S)
    return Growth(samples, client.calls, seconds)


class _Client:
    """What clients do, one kind of it a method."""

    def __init__(self, gateway: Gateway, http: httpx2.AsyncClient, until: float) -> None:
        self._rest = gateway.address
        self._mcp = f"{gateway.address.removesuffix('/api/v1')}/mcp"
        self._http = http
        self._until = until
        self.calls = 0

    async def _call(self, tool: str, mode: str = "wait", **arguments: Any) -> dict[str, Any]:
        body = {"tool": f"local.{tool}", "arguments": arguments, "mode": mode}
        reply = await self._http.post(f"{self._rest}/calls", json=body)
        self.calls += 1
        answer: dict[str, Any] = reply.json()
        return answer

    async def call(self, number: int) -> None:
        assert (await self._call("add", a=number, b=1))["content"] == number + 1

    async def pause_and_answer(self, number: int) -> None:
        asked = await self._call("drop", name=f"t{number}")
        address = f"{self._rest}/pending/{asked['pending']['id']}/answer"
        decision = {"decision": "approve"} if number % 2 else {"decision": "deny", "reason": "no"}
        ended = (await self._http.post(address, json=decision)).json()
        assert ended["status"] == ("completed" if number % 2 else "failed"), ended

    async def fail(self, number: int) -> None:
        failed = await self._call("fail") if number % 2 else await self._call("add", a="wrong")
        assert failed["status"] == "failed"

    async def keep_and_read(self, number: int) -> None:
        kept = await self._call("large", number=number)
        address = f"{self._rest}/artifacts/{kept['artifacts'][0]}/content"
        part = await self._http.get(address, headers={"Range": "bytes=0-999"})
        assert part.status_code == 206, part.text
        uploaded = await self._http.post(f"{self._rest}/artifacts", content=b"%d" % number * 1000)
        assert uploaded.status_code == 201, uploaded.text

    async def collect(self, number: int) -> None:
        started = await self._call("add", "async", a=number, b=2)
        address = f"{self._rest}/runs/{started['run_id']}/outcome"
        assert (await self._http.get(address, params={"wait_s": 30})).json()["content"] == number + 2

    async def listen(self, number: int) -> None:
        params: dict[str, str | int] = {"tool": "local.add", "after": 0} if number % 10 == 0 else {"tool": "local.*"}
        async with self._http.stream("GET", f"{self._rest}/events", params=params) as reply:
            seen = 0
            async for line in reply.aiter_lines():
                seen += line.startswith("data: ")
                if seen == 100 or time.monotonic() >= self._until:
                    return

    async def call_by_mcp(self, number: int) -> None:
        meta = {f"{_META}/protocolVersion": _MCP_VERSION, f"{_META}/clientCapabilities": {}}
        params = {"name": "local.add", "arguments": {"a": number, "b": 3}, "_meta": meta}
        headers = {"MCP-Protocol-Version": _MCP_VERSION, "Mcp-Method": "tools/call", "Mcp-Name": "local.add"}
        reply = await self._send("tools/call", params, headers)
        self.calls += 1
        assert str(number + 3) in reply.text, reply.text

    async def open_a_session(self, number: int) -> None:
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        opened = await self._send("initialize", about, {})
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._http.post(self._mcp, json=note, headers=_ACCEPT | session)
        called = await self._send("tools/call", {"name": "local.add", "arguments": {"a": number, "b": 4}}, session)
        self.calls += 1
        assert str(number + 4) in called.text, called.text
        ended = await self._http.delete(self._mcp, headers=session)  # else it is kept for half an hour of silence
        assert ended.status_code == 200, ended.text

    async def _send(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        reply = await self._http.post(self._mcp, json=body, headers=_ACCEPT | headers)
        assert reply.status_code == 200, reply.text
        return reply
