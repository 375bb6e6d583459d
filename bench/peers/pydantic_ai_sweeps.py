"""pydantic-ai in the plots: calls through its ToolManager at several concurrencies, and steps over large toolsets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import FunctionToolset, RunContext, Tool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import RunUsage

from bench.core.crowds import SIZES, crowds_of
from bench.core.harness import Contender
from bench.core.subject import ARGUMENTS, add3, schema
from bench.peers import names


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager: Any = await ToolManager(FunctionToolset([add3])).for_run_step(context)
    part = ToolCallPart("add3", ARGUMENTS)
    yield crowds_of(names.MANAGER, lambda: manager.handle_call(part))


@asynccontextmanager
async def listings() -> AsyncGenerator[list[Contender]]:
    context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    yield [_listing(context, size) for size in SIZES]


def _listing(context: Any, size: int) -> Contender:
    toolset: Any = FunctionToolset(
        [
            Tool.from_schema(add3, f"find_things_{number}", f"Find the things of kind {number}.", schema(number))
            for number in range(size)
        ]
    )

    async def call() -> object:
        manager: Any = await ToolManager(toolset).for_run_step(context)  # as before every request to a model
        return manager.tool_defs

    return Contender(name=f"{names.STEP} @ {size}", call=call)
