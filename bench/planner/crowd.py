"""Figure of many runs at once in one process: the memory that a run holds beyond its messages."""

from __future__ import annotations

import asyncio
import copy
import gc
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

from bench.core.figures import Column, Figure, Target
from bench.core.harness import Stopwatch, Tick
from bench.core.subject import ARGUMENTS, add3
from bench.planner.names import CALLS, QUESTION
from bench.planner.scale import PlannerScale
from toolpost.agents import PlannerFinish, ReactPlanner
from toolpost.catalog.function import tool
from toolpost.configuration.settings import Settings
from toolpost.testing import tool_calls
from toolpost.toolbox.box import Toolbox

KILOBYTES = 50.0
COLUMNS = (
    Column("runs", "runs at once", 0),
    Column("messages_kb", "messages KB a run"),
    Column("beyond_kb", "beyond them KB a run"),
    Column("cpu_ms", "CPU ms a run", 2),
)
NOTES = (
    f"Measured when all runs have made {CALLS} calls and wait for their model.",
    "The events of their calls, which are kept in memory here, count with them.",
)


class Waiting:
    """Calls the tool some times, then waits with all the others until it may answer."""

    def __init__(self, runs: int) -> None:
        self.all_here = asyncio.Event()
        self.go_on = asyncio.Event()
        self.seen: list[list[Any]] = []
        self._runs = runs

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        if sum(message["role"] == "tool" for message in messages) < CALLS:
            await asyncio.sleep(0)
            return tool_calls(("add3", ARGUMENTS))
        self.seen.append([*messages])
        if len(self.seen) == self._runs:
            self.all_here.set()
        await self.go_on.wait()
        return {"content": "It is 6."}


def count(_: PlannerScale) -> int:
    """How many ticks this figure makes."""
    return 2


def measure(scale: PlannerScale, tick: Tick) -> Figure:
    """Let all runs go at once, with memory traced and without."""
    cpu_us = asyncio.run(_paced(scale.at_once))
    tick("time")
    held, messages = asyncio.run(_traced(scale.at_once))
    tick("memory")
    return figure(scale.at_once, held, messages, cpu_us)


async def _paced(runs: int) -> float:
    with Stopwatch() as watch:
        await _runs(runs, lambda _: None)
    return watch.turn(runs).cpu_us


async def _traced(runs: int) -> tuple[float, float]:
    """Return the bytes that a run holds, and those of its messages."""
    held = messages = 0.0

    def look(model: Waiting) -> None:
        nonlocal held, messages
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        several = copy.deepcopy(model.seen[:10])
        messages = (tracemalloc.get_traced_memory()[0] - before - held) / len(several)

    await _runs(10, lambda _: None)  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        await _runs(runs, look)
    finally:
        tracemalloc.stop()
    return held / runs, messages


async def _runs(runs: int, look: Any) -> None:
    subject = tool(side_effects="pure")(add3)
    model = Waiting(runs)
    async with Toolbox(tools=[subject], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model, max_iters=CALLS + 1)
        going = [asyncio.create_task(planner.run(QUESTION)) for _ in range(runs)]
        await model.all_here.wait()
        look(model)
        model.go_on.set()
        for result in await asyncio.gather(*going):
            if not isinstance(result, PlannerFinish) or result.reason != "answer_complete":
                raise RuntimeError(f"a run under test ended otherwise: {result}")


def figure(runs: int, held: float, messages: float, cpu_us: float) -> Figure:
    """The numbers as a table, with the target."""
    beyond = (held - messages) / 1024
    row = {"runs": runs, "messages_kb": messages / 1024, "beyond_kb": beyond, "cpu_ms": cpu_us / 1000}
    return Figure(
        key="planner_crowd",
        title=f"{runs:,} runs at once in one process",
        columns=COLUMNS,
        rows=[row],
        targets=[Target("memory of a run beyond its messages", beyond, "at most", KILOBYTES, "KB")],
        notes=NOTES,
    )
