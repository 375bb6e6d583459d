"""What a workflow adds to each of its calls, beside a function that makes the same calls by hand.

Both call a hundred times a pure tool that does nothing, all at once, without a journal. A step of the workflow also
renders its arguments, one of them by an expression.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, undisturbed
from bench.core.main import Part
from toolpost import Completed, Settings, Toolbox, ToolContext, tool
from toolpost.sources import Workflow, WorkflowFunction

STEPS = 100
ROUNDS = 100
LIMIT_US = 50.0
COLUMNS = (
    Column("name", "workflow"),
    Column("by_hand_us", "by hand, µs a call", 1),
    Column("steps_us", "as steps, µs a call", 1),
    Column("adds_us", "adds, µs a step", 1),
)


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
async def by_hand(n: int, ctx: ToolContext) -> int:
    """Make the calls of the workflow."""
    outcomes = await asyncio.gather(*(ctx.call("add", {"a": n, "b": number}) for number in range(STEPS)))
    return sum(one.content for one in outcomes if isinstance(one, Completed))


def _workflow() -> WorkflowFunction:
    steps = {f"s{b}": {"tool": "add", "arguments": {"a": "${{ inputs.n }}", "b": b}} for b in range(STEPS)}
    inputs = {"properties": {"n": {"type": "integer"}}}
    data = {"name": "flow", "side_effects": "pure", "inputs": inputs, "steps": steps}
    return WorkflowFunction(Workflow.of({**data, "outputs": "${{ steps.s0 }}"}))


def measure(tick: Tick) -> Figure:
    """Run both in turn, and compare the medians of their rounds."""
    row = asyncio.run(_row(tick))
    return Figure(
        key="workflow",
        title=f"A workflow of {STEPS} parallel steps",
        columns=COLUMNS,
        rows=[row],
        targets=[Target(row["name"], row["adds_us"], "at most", LIMIT_US, "µs a step")],
        notes=("CPU time of the event loop, without the garbage collector: medians of rounds that take turns.",),
    )


async def _row(tick: Tick) -> Row:
    async with Toolbox(tools=[add, by_hand, _workflow()], settings=Settings(data_dir=None)) as box:
        took: dict[str, list[float]] = {"by_hand": [], "flow": []}
        with undisturbed():
            for _ in range(ROUNDS):
                for name, times in took.items():
                    began = time.thread_time()
                    outcome = await box.call(name, {"n": 1})
                    times.append(time.thread_time() - began)
                    assert isinstance(outcome, Completed)
        tick("100 pure steps")
    by_hand_us, steps_us = (1e6 * median(times) / STEPS for times in took.values())
    name = f"{STEPS} pure steps at once"
    return {"name": name, "by_hand_us": by_hand_us, "steps_us": steps_us, "adds_us": steps_us - by_hand_us}


def parts() -> list[Part]:
    """The figure as a part of a run."""
    return [Part("workflow", 1, measure)]
