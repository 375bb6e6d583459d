"""The adapter for agent-framework, in a separate environment: `make test-frameworks` runs this."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
)

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox, tool
from toolpost.adapters.agent_framework import approvals, provider, waiting


class Scripted(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__(function_invocation_configuration={"include_detailed_errors": True})
        self._calls = calls

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, **_: Any) -> Any:
        async def say() -> ChatResponse:
            answered = any(content.type == "function_result" for message in messages for content in message.contents)
            made = [
                Content.from_function_call(
                    one.id, one.name, arguments=one.arguments if isinstance(one.arguments, str) else dict(one.arguments)
                )
                for one in self._calls
            ]
            return ChatResponse(messages=[Message("assistant", ["done"] if answered else made)])

        async def stream_it() -> AsyncIterator[ChatResponseUpdate]:
            for message in (await say()).messages:
                yield ChatResponseUpdate(role="assistant", contents=message.contents)

        return self._build_response_stream(stream_it()) if stream else say()


class AgentFramework:
    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        agent = Agent(Scripted(calls), context_providers=[provider(box, user=user)])
        session = agent.create_session()
        return _read(agent, session, {}, await agent.run("go", session=session))

    async def resume(self, run: Run) -> Run:
        agent, session, results, response = run.state
        resumed = await agent.run(Message("user", approvals(response)), session=session)
        return _read(agent, session, results, resumed)


def _read(agent: Agent, session: Any, before: Mapping[str, Result], response: Any) -> Run:
    results = dict(before)
    for message in response.messages:
        for one in message.contents:
            if one.type == "function_result":
                data = (one.items or [])[0].additional_properties if one.items else None
                results[one.call_id] = Result(str(one.result), one.exception is not None, data)
    waits = [one["pending_id"] for one in waiting(response)]
    return Run(results, waits, None if waits else response.text, (agent, session, results, response))


class TestAgentFramework(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return AgentFramework()

    async def test_a_streamed_run_waits_and_is_resumed(self, box: Toolbox, shelf: Shelf) -> None:
        agent = Agent(
            Scripted([Call("w1", "wipe", {"disk": "sda"})]), context_providers=[provider(box, user="acme:ann")]
        )
        session = agent.create_session()
        response = await agent.run("go", session=session, stream=True).get_final_response()
        (asked,) = waiting(response)
        await box.approve(asked["pending_id"], by="acme:boss")

        stream = agent.run(Message("user", approvals(response)), session=session, stream=True)
        texts = [update.text async for update in stream if update.text]

        assert texts == ["done"]
        assert shelf.wiped == [("sda", "acme:ann")]

    async def test_a_run_has_the_tools_of_the_catalog_at_that_time(self, box: Toolbox) -> None:
        adding = provider(box, only=["add", "l*"])
        agent = Agent(Scripted([Call("l1", "late")]), context_providers=[adding])
        unknown = await agent.run("go")

        @tool(side_effects="pure")
        async def late() -> str:
            """Come late."""
            return "here"

        box.registry.register(late)
        known = await agent.run("go")

        assert [_result_of(run) for run in (unknown, known)] == ['Error: Requested function "late" not found.', "here"]


def _result_of(response: Any) -> str:
    contents = [one for message in response.messages for one in message.contents]
    return next(str(one.result) for one in contents if one.type == "function_result")
