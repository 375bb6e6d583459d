"""Metrics over a long log: the share of counting in the CPU of a call, and the time of a series of 30 days.

Run: python -m bench.metrics [EVENTS]
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from tests.gateway.serving import served
from toolpost import Settings, Toolbox, tool
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.storage import Store

DAYS_S = 30 * 24 * 3600
_TOOLS, _USERS, _CODES = 40, 25, ("timeout", "rate_limited", "server_error")
_CALLS, _AT_ONCE = 5_000, 50


@tool(side_effects="write")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main(events: int) -> None:
    """Print the cost of counting calls, and the time of requests on a log of `events` events."""
    with tempfile.TemporaryDirectory() as folder:
        await show_share(Path(folder, "calls"))
        await show_series(Path(folder, "log"), events)


async def show_share(folder: Path) -> None:
    """Print the CPU of counting beside that of durable calls, over REST and in process."""
    async with Toolbox(tools=[add], settings=Settings(data_dir=folder)) as box:
        began = time.process_time()
        for _ in range(_CALLS // _AT_ONCE):
            await asyncio.gather(*(box.call("add", {"a": 1, "b": 2}, user="acme:ann") for _ in range(_AT_ONCE)))
        await box.store.events.flush()
        call_us = (time.process_time() - began) / _CALLS * 1e6
        count_us = await _count(box.store) / _CALLS * 1e6
    async with served(folder.with_name("rest"), [add]) as gate:
        began = time.process_time()
        for _ in range(200):
            (
                await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}})
            ).raise_for_status()
        rest_us = (time.process_time() - began) / 200 * 1e6
    print(f"counting: {count_us:.1f} us of CPU per call")
    print(f"  {count_us / call_us:.1%} of a durable call in process ({call_us:.0f} us)")
    print(f"  {count_us / rest_us:.1%} of a durable call over REST, with its client ({rest_us:.0f} us)")


async def show_series(folder: Path, events: int) -> None:
    """Print the time of the requests that plots need."""
    now, chance = time.time(), random.Random(1)
    async with served(folder, [add]) as gate:
        log = gate.box.store.events
        for number in range(events // 3):
            at = now - DAYS_S * (1 - number / (events // 3))
            call = CallRef(
                f"run_{number}",
                f"call_{number}",
                f"shop.tool_{chance.randrange(_TOOLS)}",
                "acme",
                f"user_{chance.randrange(_USERS)}",
                "",
                dict,
            )
            log.emit(RunEvent(EventCode.TOOL_CALL_REQUESTED, at, call, {"params": {"a": 1}}))
            log.emit(RunEvent(EventCode.TOOL_CALL_STARTED, at, call, {"input": {"a": 1}}))
            failed = number % 20 == 0
            facts = {"duration_ms": chance.lognormvariate(4, 1), "error_code": chance.choice(_CODES)}
            code = EventCode.TOOL_CALL_FAILED if failed else EventCode.TOOL_CALL_COMPLETED
            log.emit(RunEvent(code, at + 1, call, facts))
            if log.congested:
                await log.drain()
        await log.flush()
        print(f"{events:,} events of {DAYS_S // 86400} days are in the log")
        await _count(gate.box.store)
        window = {"since": now - DAYS_S, "until": now, "step": 21_600}
        for path, query in (
            ("series", {"metric": "calls,failed,p50,p95,p99"}),
            ("series", {"metric": "calls", "by": "code"}),
            ("series", {"metric": "calls,p95", "by": "tool"}),
            ("top", {"by": "tool"}),
            ("top", {"by": "failure"}),
        ):
            print(f"  GET /insight/{path} {query}: {await _fastest(gate.http, path, {**window, **query}):.0f} ms")


async def _fastest(http: httpx2.AsyncClient, path: str, query: dict[str, object]) -> float:
    took: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        params = {name: str(value) for name, value in query.items() if path == "series" or name != "step"}
        (await http.get(f"/api/v1/insight/{path}", params=params)).raise_for_status()
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took)[len(took) // 2]


async def _count(store: Store) -> float:
    """Count all events; return the CPU in seconds."""
    began = time.process_time()
    while await store.metrics.count():
        pass
    return time.process_time() - began


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
