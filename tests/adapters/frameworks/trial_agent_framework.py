"""The adapter for agent-framework, in an environment of its own: `make test-frameworks` runs this."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters.agent_framework import approvals, provider, waiting


class Scripted(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__(function_invocation_configuration={"include_detailed_errors": True})
        self._calls = calls

    def _inner_get_response(self, *, messages: Sequence[Message], **_: Any) -> Any:
        async def say() -> ChatResponse:
            answered = any(content.type == "function_result" for message in messages for content in message.contents)
            made = [
                Content.from_function_call(
                    one.id, one.name, arguments=one.arguments if isinstance(one.arguments, str) else dict(one.arguments)
                )
                for one in self._calls
            ]
            return ChatResponse(messages=[Message("assistant", ["done"] if answered else made)])

        return say()


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
