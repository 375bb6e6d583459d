"""The cost of a call with a slot, beside a call without a limit."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from bench.core.figures import Target
from toolpost import Settings, Toolbox, tool
from toolpost.contracts.limits import LimitStore

ROUNDS, CALLS = 60, 50
_MOST_US = 10.0


@tool(side_effects="pure")
async def free(a: int) -> int:
    """Return the argument."""
    return a


@tool(side_effects="pure", max_concurrency=5)
async def limited(a: int) -> int:
    """Return the argument."""
    return a


async def _take_slots(limits: LimitStore) -> float:
    """Return the µs of a slot that is taken from the store and returned, as once in 50 ms."""
    began = time.perf_counter()
    for _ in range(CALLS):
        await limits.enter("alone", 5, waiting=1)
        limits.leave("alone")
    return (time.perf_counter() - began) / CALLS * 1e6


async def measure_cost(name: str, database: str | None = None) -> list[Target]:
    """Call both tools in turns; the difference of the fastest turns is the cost."""
    took: dict[str, list[float]] = {"free": [], "limited": []}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=None if database is None else Path(folder), database=database)
        async with Toolbox(tools=[free, limited], settings=settings) as box:
            for _ in range(ROUNDS):
                for called, times in took.items():
                    began = time.perf_counter()
                    for number in range(CALLS):
                        await box.call(called, {"a": number})
                    times.append((time.perf_counter() - began) / CALLS * 1e6)
            alone = min([await _take_slots(box.store.limits) for _ in range(ROUNDS)])
    best = {called: min(times) for called, times in took.items()}
    usual = {called: median(times) for called, times in took.items()}
    print(f"{name}: a call takes {best['free']:.0f} µs, with a slot {best['limited']:.0f} µs (fastest turns)")
    print(f"  median {usual['free']:.0f} and {usual['limited']:.0f} µs; alone, a slot takes {alone:.0f} µs")
    return [Target(f"{name}: cost of a slot, µs", best["limited"] - best["free"], "at most", _MOST_US)]
