"""Figure of a long run that goes on: from `resume` to the next question to the model."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core.figures import Column, Figure, Target
from bench.core.harness import Tick
from bench.core.subject import ARGUMENTS, add3
from bench.planner.names import QUESTION
from bench.planner.scale import PlannerScale
from toolpost.agents import PlannerPause, ReactPlanner
from toolpost.catalog.function import tool
from toolpost.configuration.settings import Settings
from toolpost.contracts.context import ToolContext
from toolpost.testing import tool_calls
from toolpost.toolbox.box import Toolbox

MOST_MS = 50.0
COLUMNS = (
    Column("steps", "steps", 0),
    Column("median_ms", "median ms"),
    Column("slowest_ms", "slowest ms"),
)
NOTES = ("On SQLite, from another Toolbox than the one that paused: the pause is read, the answered call runs again.",)


@tool(side_effects="read")
async def ask(ctx: ToolContext) -> str:
    """Ask a person."""
    return str(await ctx.pause("await_input"))


class LongWinded:
    """Calls the tool many times, then asks a person, then notes when it is asked again."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.asked_at = 0.0

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        done = sum(message["role"] == "tool" for message in messages)
        if done < self._steps - 1:
            return tool_calls(("add3", ARGUMENTS))
        if done < self._steps:
            return tool_calls(("ask", {}))
        self.asked_at = time.perf_counter()
        return {"content": "It is 6."}


def count(scale: PlannerScale) -> int:
    """How many ticks this figure makes."""
    return scale.resumed + 1


def measure(scale: PlannerScale, tick: Tick) -> Figure:
    """Pause long runs, and resume each."""
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        return figure(scale.steps, asyncio.run(_resumed(Path(folder), scale, tick))[1:])


async def _resumed(folder: Path, scale: PlannerScale, tick: Tick) -> list[float]:
    took: list[float] = []
    tools, settings = [tool(side_effects="pure")(add3), ask], Settings(data_dir=folder)
    for _ in range(scale.resumed + 1):  # the first one only warms up
        model = LongWinded(scale.steps)
        async with Toolbox(tools=tools, settings=settings) as box:
            pause = await ReactPlanner(catalog=box, llm=model, max_iters=scale.steps + 1).run(QUESTION)
        if not isinstance(pause, PlannerPause):
            raise RuntimeError(f"the run under test did not pause: {pause}")  # noqa: TRY004 - no caller's mistake
        async with Toolbox(tools=tools, settings=settings) as box:
            planner = ReactPlanner(catalog=box, llm=model, max_iters=scale.steps + 1)
            began = time.perf_counter()
            await planner.resume(pause.resume_token, "yes")
        took.append((model.asked_at - began) * 1000)
        tick("resume")
    return took


def figure(steps: int, took_ms: Sequence[float]) -> Figure:
    """The numbers as a table, with the target."""
    median, slowest = statistics.median(took_ms), max(took_ms)
    return Figure(
        key="planner_resume",
        title=f"A run of {steps} steps is resumed",
        columns=COLUMNS,
        rows=[{"steps": steps, "median_ms": median, "slowest_ms": slowest}],
        targets=[Target(f"a run of {steps} steps ready", median, "at most", MOST_MS, "ms")],
        notes=NOTES,
    )
