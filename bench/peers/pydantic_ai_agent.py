"""pydantic-ai's agent: the same run as our planner's, with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from bench.core.harness import Contender
from bench.core.subject import ARGUMENTS, add3
from bench.planner.names import ANSWER, CALLS, PYDANTIC_AI, QUESTION


async def _say(messages: list[Any], _: Any) -> ModelResponse:
    done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    return ModelResponse(parts=[TextPart(ANSWER) if done == CALLS else ToolCallPart("add3", ARGUMENTS)])


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    agent: Any = Agent(FunctionModel(_say), tools=[add3])

    async def run() -> Any:
        return await agent.run(QUESTION)

    result = await run()
    returned = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    if result.output != ANSWER or len(returned) != CALLS:
        raise RuntimeError(f"pydantic-ai's agent ended otherwise: {result}")
    yield [Contender(name=PYDANTIC_AI, call=run)]
