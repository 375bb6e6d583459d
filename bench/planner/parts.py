"""The figures of the planner as parts of a run."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from bench.core.main import Part
from bench.core.processes import Worker
from bench.envs import HERE, environment
from bench.planner import crowd, resume, step
from bench.planner.scale import PlannerScale

_PEERS = {
    "langgraph": "bench.peers.langgraph_agent",
    "pydantic-ai": "bench.peers.pydantic_ai_agent",
    "penguiflow": "bench.peers.penguiflow_planner",
}


def parts(scale: PlannerScale, stack: ExitStack) -> list[Part]:
    """All there are; peers run in separate environments."""
    workers = [
        stack.enter_context(Worker(str(environment(name)), module, path=[HERE.parent]))
        for name, module in _PEERS.items()
    ]
    ticks = step.count(scale, peers=sum(len(worker.names) for worker in workers))
    return [
        Part("planner step", ticks, partial(step.measure, scale, tracks=workers)),
        Part("planner crowd", crowd.count(scale), partial(crowd.measure, scale)),
        Part("planner resume", resume.count(scale), partial(resume.measure, scale)),
    ]
