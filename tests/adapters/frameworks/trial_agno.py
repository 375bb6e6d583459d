"""The adapter for Agno, in a separate environment: `make test-frameworks` runs this."""

import copy
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters.agno import resumable, tools, waiting


class Scripted(Model):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__(id="scripted")
        self.calls = calls

    async def ainvoke(self, messages: Any, **_: Any) -> ModelResponse:
        if any(message.role == "tool" for message in messages):
            return ModelResponse(role="assistant", content="done")
        return ModelResponse(role="assistant", tool_calls=[_written(call) for call in self.calls])

    def invoke(self, *_: Any, **__: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *_: Any, **__: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    def ainvoke_stream(self, *_: Any, **__: Any) -> AsyncIterator[ModelResponse]:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError


def _written(call: Call) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


class Agno:
    has_data = False

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        agent = Agent(model=Scripted(calls), tools=list(await tools(box, user=user)), telemetry=False)
        return await _read(agent, await agent.arun("go"))

    async def resume(self, run: Run) -> Run:
        agent, stored = run.state
        paused = copy.deepcopy(stored)  # as a database would return it
        requirements = await resumable(agent, paused)
        if requirements is not None:
            paused = await agent.acontinue_run(run_response=paused, requirements=requirements)
        return await _read(agent, paused)


async def _read(agent: Agent, run: Any) -> Run:
    found = [message for message in run.messages or [] if message.role == "tool"]
    results = {one.tool_call_id: Result(str(one.content), bool(one.tool_call_error)) for one in found}
    waits = [one["pending_id"] for one in await waiting(agent, run)]
    return Run(results, waits, None if run.is_paused else run.content, (agent, run))


class TestAgno(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return Agno()

    async def test_arguments_that_are_a_broken_text_are_a_failure(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        run = await driver.run(box, [Call("bad_3", "add", '{"a": 2, ')])

        assert "Error while decoding function arguments" in run.results["bad_3"].text  # by the framework itself
        assert shelf.added == []
