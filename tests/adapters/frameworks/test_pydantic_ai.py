"""The adapter for Pydantic AI."""

from collections.abc import AsyncIterable, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters.pydantic_ai import ToolProgress, toolset


class PydanticAI:
    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        agent = Agent(scripted(calls), toolsets=[toolset(box, user=user)], output_type=[str, DeferredToolRequests])
        return _read(agent, await agent.run("go"))

    async def resume(self, run: Run) -> Run:
        agent, done = run.state
        given = done.output.build_results(approve_all=True)
        return _read(agent, await agent.run(message_history=done.all_messages(), deferred_tool_results=given))


def scripted(calls: Sequence[Call]) -> FunctionModel:
    """A model that makes some calls, and then says that it is done."""

    def say(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if any(returns(message) for message in messages):
            return ModelResponse([TextPart("done")])
        made = [
            ToolCallPart(one.name, one.arguments if isinstance(one.arguments, str) else dict(one.arguments), one.id)
            for one in calls
        ]
        return ModelResponse(made)

    return FunctionModel(say)


def returns(message: ModelMessage) -> list[ToolReturnPart]:
    return [part for part in message.parts if isinstance(part, ToolReturnPart)]


def _read(agent: Agent[Any, Any], done: Any) -> Run:
    parts = [part for message in done.all_messages() for part in returns(message)]
    results = {part.tool_call_id: Result(str(part.content), part.outcome != "success", part.metadata) for part in parts}
    deferred = isinstance(done.output, DeferredToolRequests)
    waiting = [one["pending_id"] for one in done.output.metadata.values()] if deferred else []
    return Run(results, waiting, None if deferred else done.output, (agent, done))


@pytest.mark.req("FRAME-01", "FRAME-02", "FRAME-03")
class TestPydanticAI(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return PydanticAI()

    async def test_progress_is_an_event_of_the_run(self, box: Toolbox) -> None:
        received: list[Any] = []

        async def receive(_: Any, events: AsyncIterable[Any]) -> None:
            received.extend([event async for event in events if isinstance(event, ToolProgress)])

        agent = Agent(TestModel(call_tools=["page"]), toolsets=[toolset(box)])
        await agent.run("go", event_stream_handler=receive)

        (event,) = received
        assert (event.tool_name, event.facts["text"], event.facts["fraction"]) == ("page", "half of it", 0.5)
