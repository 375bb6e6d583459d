"""The steady load of a soak: calls over REST and MCP, background calls, approvals, sessions, artifacts, followers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from itertools import count
from statistics import median, quantiles
from typing import Any, NamedTuple

import httpx2

from bench.gateway.client import RawClient

Latencies = dict[str, list[float]]
_PATIENCE_S = 60.0
# How often a second each kind of work is done at each gateway.
RATES = {
    "rest": 3.0,
    "mcp session": 3.0,
    "mcp": 3.0,
    "background": 1.0,
    "approval": 0.25,
    "artifact": 0.2,
    "new session": 0.2,
    "scrape": 0.07,
}
# The kinds whose latency is plotted; the others do more than one thing.
TIMED = ("rest", "mcp session", "mcp", "background")


class Address(NamedTuple):
    """Where a gateway listens, and the token of its operator."""

    mcp: str
    token: str

    @property
    def root(self) -> str:
        """The address of REST and metrics."""
        return self.mcp.removesuffix("/mcp")


class Load:
    """Clients of both gateways, until they are stopped; what they did and how long it took."""

    def __init__(self, gateways: list[Address]) -> None:
        self._gateways = gateways
        self._stopping = asyncio.Event()
        self._numbers = count(1)
        self._latencies: Latencies = defaultdict(list)
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.events = 0

    def stop(self) -> None:
        """Let everything that was begun end, and begin nothing else."""
        self._stopping.set()

    def latencies(self) -> dict[str, float]:
        """The medians and 95th percentiles since the last time, in milliseconds."""
        taken, self._latencies = self._latencies, defaultdict(list)
        found: dict[str, float] = {}
        for kind in TIMED:
            times = [one * 1000 for one in taken[kind]]
            found[f"{kind} p50 ms"] = median(times) if times else 0.0
            found[f"{kind} p95"] = quantiles(times, n=20)[-1] if len(times) > 1 else found[f"{kind} p50 ms"]
        return found

    async def run(self) -> None:
        """Do all kinds of work at all gateways."""
        async with asyncio.TaskGroup() as group:
            for gateway in self._gateways:
                group.create_task(self._at(gateway))

    async def _at(self, gateway: Address) -> None:
        headers = {"Authorization": f"Bearer {gateway.token}"}
        session, newer = RawClient(gateway.mcp, gateway.token), RawClient(gateway.mcp, gateway.token)
        await session.open_session()
        async with httpx2.AsyncClient(base_url=gateway.root, headers=headers, timeout=_PATIENCE_S) as rest:
            work: dict[str, Callable[[str], Awaitable[None]]] = {
                "rest": lambda name: _call(rest, "local.fetch", name),
                "mcp session": lambda name: _call_over(session, name),
                "mcp": lambda name: _call_over(newer, name),
                "background": lambda name: _in_background(rest, "local.pay", name),
                "approval": lambda name: _approved(rest, name),
                "artifact": lambda name: _call(rest, "local.report", name),
                "new session": lambda name: _session(rest, name),
                "scrape": lambda _: _scrape(rest),
            }
            following = asyncio.create_task(self._follow(rest))
            async with asyncio.TaskGroup() as lanes:
                for kind, one in work.items():
                    lanes.create_task(self._lane(kind, one))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        session.close()
        newer.close()

    async def _lane(self, kind: str, work: Callable[[str], Awaitable[None]]) -> None:
        """Do one kind of work at its rate, one after the other; what is late is not made up for."""
        while not self._stopping.is_set():
            began = time.perf_counter()
            name = f"{kind.replace(' ', '-')}-{next(self._numbers)}"
            try:
                await work(name)
            except Exception as error:  # noqa: BLE001 - a soak goes on, and reports it
                self.failures.append(f"{name}: {type(error).__name__}: {error}")
            else:
                self.done[kind] += 1
                self._latencies[kind].append(time.perf_counter() - began)
            await self._pause(1 / RATES[kind] - (time.perf_counter() - began))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _follow(self, rest: httpx2.AsyncClient) -> None:
        """Read the stream of events, which must not end before its client ends it."""
        try:
            async with rest.stream("GET", "/api/v1/events", timeout=None) as answer:
                answer.raise_for_status()
                async for line in answer.aiter_lines():
                    self.events += line.startswith("id:")
            self.failures.append("a stream of events ended")
        except httpx2.HTTPError as error:
            self.failures.append(f"a stream of events ended: {error!r}")


async def _scrape(rest: httpx2.AsyncClient) -> None:
    """Read what a monitoring system reads."""
    for path in ("/metrics", "/readyz", "/api/v1/status"):
        (await rest.get(path)).raise_for_status()


async def _call(rest: httpx2.AsyncClient, tool: str, name: str, **more: Any) -> None:
    answer = await rest.post("/api/v1/calls", json={"tool": tool, "arguments": {"name": name}, **more})
    _expect(answer, "completed")


async def _call_over(client: RawClient, name: str) -> None:
    result = await client.call("local.fetch", {"name": name})
    if result.get("isError"):
        raise RuntimeError(str(result))


async def _in_background(rest: httpx2.AsyncClient, tool: str, name: str, status: str = "completed") -> Any:
    """Request a call that a worker makes, and wait for its outcome."""
    accepted = await rest.post("/api/v1/calls", json={"tool": tool, "arguments": {"name": name}, "mode": "async"})
    accepted.raise_for_status()
    return _expect(await _outcome(rest, accepted.json()["run_id"]), status)


async def _outcome(rest: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
    return await rest.get(f"/api/v1/runs/{run_id}/outcome", params={"wait_s": 30})


async def _approved(rest: httpx2.AsyncClient, name: str) -> None:
    """Request a background call that waits for a person, approve it, and wait until a worker has made it."""
    paused = await _in_background(rest, "local.drop", name, status="paused")
    answer = await rest.post(f"/api/v1/pending/{paused['pending']['id']}/answer", json={"decision": "approve"})
    _expect(answer, "completed")


async def _session(rest: httpx2.AsyncClient, name: str) -> None:
    """Open a session of MCP with a connection of its own, call, and end it."""
    bearer = rest.headers["Authorization"].removeprefix("Bearer ")
    client = RawClient(f"{str(rest.base_url).rstrip('/')}/mcp", bearer)
    try:
        await client.open_session()
        await _call_over(client, name)
        answer = await rest.delete("/mcp", headers=client.session_headers)
        answer.raise_for_status()
    finally:
        client.close()


def _expect(answer: httpx2.Response, status: str) -> Any:
    answer.raise_for_status()
    outcome = answer.json()
    if outcome["status"] != status:
        raise RuntimeError(f"{status} was expected: {str(outcome)[:300]}")
    return outcome
