"""`toolpost bench`: measure the cost of a call through the whole pipeline on this machine."""

from __future__ import annotations

import gc
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolpost.catalog.function import tool
from toolpost.configuration.settings import Settings
from toolpost.contracts.outcomes import Completed
from toolpost.toolbox.box import Toolbox

if TYPE_CHECKING:
    from toolpost.cli.output import Output

CALLS, QUICK_CALLS = 10_000, 1_000
_ARGUMENTS = {"a": 1, "b": 2, "c": 3}


class Cost(NamedTuple):
    """Cost of one call in microseconds: wall time, and CPU time of all threads with its events written."""

    name: str
    median_us: float
    p99_us: float
    cpu_us: float


@tool(side_effects="pure")
async def add3(a: int, b: int, c: int) -> int:
    """Add three numbers."""
    return a + b + c


async def bench(output: Output, *, quick: bool) -> int:
    """Measure the function itself, then calls of it through a Toolbox in memory and on SQLite; print the costs."""
    calls = QUICK_CALLS if quick else CALLS
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        costs = [await _measure("function alone", lambda: add3(**_ARGUMENTS), calls)]
        for name, data_dir in (("Toolbox in memory", None), ("Toolbox on SQLite", Path(folder))):
            async with Toolbox(tools=[add3], settings=Settings(data_dir=data_dir)) as box:
                outcome = await box.call("add3", _ARGUMENTS)
                if not isinstance(outcome, Completed):
                    raise RuntimeError(f"{name}: the call {outcome.status}: {outcome}")  # noqa: TRY004 - no caller's mistake
                costs.append(await _measure(name, lambda: box.call("add3", _ARGUMENTS), calls, box.store.events.flush))
    if output.as_json:
        output.document(
            {"calls": calls, "python": platform.python_version(), "costs": [one._asdict() for one in costs]}
        )
        return 0
    rows = [(one.name, f"{one.median_us:.1f}", f"{one.p99_us:.1f}", f"{one.cpu_us:.1f}") for one in costs]
    output.table(["Call", "Median µs", "99th percentile µs", "CPU µs"], rows)
    output.note(f"{calls:,} calls each; CPU is that of all threads, with the events written.")
    return 0


async def _measure(
    name: str, call: Callable[[], Awaitable[object]], calls: int, settle: Callable[[], Awaitable[object]] | None = None
) -> Cost:
    for _ in range(calls // 10):
        await call()
    took: list[float] = []
    gc.collect()
    gc.disable()  # a collection in the middle of a call would be that call's cost
    try:
        cpu_s = -time.process_time()
        for _ in range(calls):
            began = time.perf_counter()
            await call()
            took.append((time.perf_counter() - began) * 1e6)
        if settle is not None:
            await settle()
        cpu_s += time.process_time()
    finally:
        gc.enable()
    return Cost(name, statistics.median(took), statistics.quantiles(took, n=100)[98], cpu_s / calls * 1e6)
