"""pydantic-ai: a function tool called through its ToolManager, and past it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import RunUsage

from bench.core.harness import Contender
from bench.core.subject import ARGUMENTS, SUM, add3
from bench.peers import names


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    toolset: Any = FunctionToolset([add3])
    context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager: Any = await ToolManager(toolset).for_run_step(context)
    # Made once: a new part costs 5 µs, and an agent has it from its model.
    part = ToolCallPart("add3", ARGUMENTS)
    known = await toolset.get_tools(context)

    async def past_the_manager() -> Any:
        tool = known["add3"]
        return await toolset.call_tool("add3", tool.args_validator.validate_python(ARGUMENTS), context, tool)

    if await manager.handle_call(part) != SUM or await past_the_manager() != SUM:
        raise RuntimeError("pydantic-ai cannot add")
    yield [
        Contender(name=names.MANAGER, call=lambda: manager.handle_call(part)),
        Contender(name=names.TOOLSET, call=past_the_manager),
        Contender(name=names.CONTROL, call=lambda: add3(**ARGUMENTS)),
    ]
