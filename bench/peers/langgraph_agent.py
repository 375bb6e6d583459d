"""LangGraph's prebuilt agent: the same run as our planner's, with a scripted chat model; also over a Toolbox."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.prebuilt import create_react_agent

from bench.core.harness import Contender
from bench.core.subject import ARGUMENTS, SUM, add3
from bench.planner.catalog import called, opened
from bench.planner.names import ANSWER, CALLS, LANGGRAPH, LANGGRAPH_OVER_BOX, QUESTION
from toolpost.contracts.spec import ToolDefinition
from toolpost.toolbox.box import Toolbox

warnings.filterwarnings("ignore")  # it tells at every start where it will move to


class Scripted(BaseChatModel):
    """Calls a tool for each of its wishes, then answers."""

    wishes: list[tuple[str, dict[str, Any]]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        done = sum(isinstance(message, ToolMessage) for message in messages)
        said = AIMessage(content=ANSWER)
        if done < len(self.wishes):
            name, arguments = self.wishes[done]
            call = {"name": name, "args": arguments, "id": f"c{done}", "type": "tool_call"}
            said = AIMessage(content="", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        return self._generate(messages)


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    async with opened() as box:
        over_box = await _running(LANGGRAPH_OVER_BOX, tools_of(box, called))
        made = box.registry.get_stats().call_stats["add3"].count
        if made != CALLS:
            raise RuntimeError(f"{made} calls were made through the Toolbox, not {CALLS}")
        yield [await _running(LANGGRAPH, [add3]), over_box]


def tools_of(box: Toolbox, call: Callable[[Toolbox, str, dict[str, Any]], Awaitable[Any]]) -> list[Any]:
    """Make LangChain's tools of the definitions that a model would be given; `call` makes their calls."""

    def tool_of(definition: ToolDefinition) -> Any:
        async def run(**arguments: Any) -> Any:
            return await call(box, definition.name, arguments)

        return StructuredTool(
            name=definition.name,
            description=definition.description,
            args_schema=definition.parameters,
            coroutine=run,
        )

    return [tool_of(definition) for definition in box.registry.to_llm_tools()]


async def _running(name: str, tools: list[Any]) -> Contender:
    agent = create_react_agent(Scripted(wishes=[("add3", ARGUMENTS)] * CALLS), tools)

    async def run() -> Any:
        asked = {"messages": [{"role": "user", "content": QUESTION}]}
        return await agent.ainvoke(asked, {"recursion_limit": 100})

    messages = (await run())["messages"]
    results = [each.content for each in messages if isinstance(each, ToolMessage)]
    if messages[-1].content != ANSWER or results != [str(SUM)] * CALLS:
        raise RuntimeError(f"{name} ended otherwise: {messages[-1]}, {results}")
    return Contender(name=name, call=run)
