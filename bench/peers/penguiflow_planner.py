"""Penguiflow's own ReactPlanner over the catalog of a Toolbox: its nodes call the tools through the whole pipeline."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from penguiflow.catalog import NodeSpec
from penguiflow.node import Node
from penguiflow.planner import ReactPlanner
from pydantic import BaseModel, ConfigDict

from bench.core.harness import Contender
from bench.core.subject import ARGUMENTS
from bench.planner.catalog import called, opened
from bench.planner.names import ANSWER, CALLS, PENGUIFLOW, QUESTION, STEPS
from toolpost.toolbox.box import Toolbox

logging.disable(logging.WARNING)  # it tells of every step


class Arguments(BaseModel):
    """Whatever the tool takes: its own schema is checked behind the node."""

    model_config = ConfigDict(extra="allow")


class Result(BaseModel):
    """What a call came to."""

    result: Any


class Scripted:
    """Calls a tool for each of its wishes, then answers."""

    def __init__(self, wishes: list[tuple[str, dict[str, Any]]]) -> None:
        self._next = iter([*wishes, ("final_response", {"answer": ANSWER})])

    async def complete(self, **_: Any) -> str:
        name, arguments = next(self._next)
        return json.dumps({"next_node": name, "args": arguments})


def specs_of(box: Toolbox, call: Callable[[Toolbox, str, dict[str, Any]], Awaitable[Any]]) -> list[Any]:
    """Make Penguiflow's nodes of the tools of a Toolbox; `call` makes their calls."""

    def node_of(name: str) -> Any:
        async def run(args: Arguments, _ctx: Any) -> Result:
            return Result(result=await call(box, name, args.model_dump()))

        return Node(run, name=name)

    return [
        NodeSpec(node_of(spec.name), spec.name, spec.description, Arguments, Result, spec.side_effects)
        for spec in box.registry.specs()
    ]


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    async with opened() as box:
        specs = specs_of(box, called)

        async def run() -> Any:
            model = Scripted([("add3", ARGUMENTS)] * CALLS)
            planner: Any = ReactPlanner(llm_client=model, catalog=specs, max_iters=STEPS + 1)
            return await planner.run(QUESTION)

        before = box.registry.get_stats().call_stats
        result = await run()
        made = box.registry.get_stats().call_stats["add3"].count
        if result.reason != "answer_complete" or made != CALLS or before:
            raise RuntimeError(f"Penguiflow's planner ended otherwise: {result}, after {made} calls")
        yield [Contender(name=PENGUIFLOW, call=run)]
