"""Figure of a step: a scripted model and its tool take turns, beside the agents of peers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Contender, LocalTrack, Measured, Tick, Track, interleave
from bench.core.subject import ARGUMENTS, add3
from bench.planner.names import ANSWER, CALLS, LANGGRAPH, OURS, PYDANTIC_AI, QUESTION, SQLITE, STEPS
from bench.planner.scale import PlannerScale
from toolpost.agents import PlannerFinish, ReactPlanner
from toolpost.catalog.function import tool
from toolpost.configuration.settings import Settings
from toolpost.testing import tool_calls
from toolpost.toolbox.box import Toolbox

STEP_US = 300.0
COLUMNS = (
    Column("name", "contender"),
    Column("step_us", "step µs"),
    Column("p99_us", "p99 µs"),
    Column("cpu_us", "CPU µs"),
    Column("of_ours", "x ours", 2),
)
NOTES = (
    f"A run has {CALLS} calls of a pure tool, one in a reply, and an answer: {STEPS} steps. The model takes no time.",
    "In memory nothing is written; a step of ours is still validated, permitted and told as events.",
)


class Scripted:
    """Calls the tool as often as a run has it, then answers; knows where it is by the messages alone."""

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        done = sum(message["role"] == "tool" for message in messages)
        return {"content": ANSWER} if done == CALLS else tool_calls(("add3", ARGUMENTS))


def count(scale: PlannerScale, *, peers: int) -> int:
    """How many ticks this figure makes."""
    return (scale.rounds + 1) * (2 + peers)


def measure(scale: PlannerScale, tick: Tick, *, tracks: Sequence[Track] = ()) -> Figure:
    """Measure runs of all contenders."""
    return asyncio.run(_measure(scale, tick, tracks))


async def _measure(scale: PlannerScale, tick: Tick, tracks: Sequence[Track]) -> Figure:
    async with contenders() as own:
        result = await interleave([LocalTrack(own), *tracks], rounds=scale.rounds, calls=scale.runs, tick=tick)
    return figure(result)


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """Our own, in memory and on disk."""
    subject = tool(side_effects="pure")(add3)
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        in_memory = Toolbox(tools=[subject], settings=Settings(data_dir=None))
        on_disk = Toolbox(tools=[subject], settings=Settings(data_dir=Path(folder)))
        async with in_memory, on_disk:
            yield [await _running(OURS, in_memory), await _running(SQLITE, on_disk)]


async def _running(name: str, box: Toolbox) -> Contender:
    planner = ReactPlanner(catalog=box, llm=Scripted(), max_iters=STEPS)
    result = await planner.run(QUESTION)
    if not isinstance(result, PlannerFinish) or (result.answer, result.metadata["iterations"]) != (ANSWER, STEPS):
        raise RuntimeError(f"{name}: the run under test ended otherwise: {result}")
    return Contender(name=name, call=lambda: planner.run(QUESTION), settle=box.store.events.flush)


def figure(result: dict[str, Measured]) -> Figure:
    """The numbers of a step as a table, with the targets."""
    ours = result[OURS]
    peers = [name for name in (LANGGRAPH, PYDANTIC_AI) if name in result]
    return Figure(
        key="planner_step",
        title="A step of an agent with a scripted model",
        columns=COLUMNS,
        rows=[_row(name, measured, ours) for name, measured in result.items()],
        targets=[
            Target(f"{OURS}, a step", ours.median_us / STEPS, "at most", STEP_US, "µs"),
            *(Target(f"{OURS} / {name}, median", ours.times(result[name]), "at most", 1.0) for name in peers),
        ],
        notes=NOTES,
    )


def _row(name: str, measured: Measured, ours: Measured) -> Row:
    return {
        "name": name,
        "step_us": measured.median_us / STEPS,
        "p99_us": measured.p99_us / STEPS,
        "cpu_us": measured.cpu_us / STEPS,
        "of_ours": measured.times(ours),
    }
