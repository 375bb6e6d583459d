"""The adapter for the OpenAI Agents SDK, in a separate environment: `test_own_environments.py` runs this."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, RunResult, RunState, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import ANN, BOSS, AdapterTests
from toolpost import Toolbox
from toolpost.adapters.openai_agents import resumable, tools, waiting

CONFIG = RunConfig(tracing_disabled=True)


class Scripted(Model):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = [
            ResponseFunctionToolCall(
                type="function_call",
                call_id=call.id,
                name=call.name,
                arguments=call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
            )
            for call in calls
        ]

    async def get_response(self, *_: Any, input: Any, **__: Any) -> ModelResponse:
        answered = any(item.get("type") == "function_call_output" for item in input)
        output: list[Any] = [_message("done")] if answered else list(self._calls)
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _message(text: str) -> ResponseOutputMessage:
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return ResponseOutputMessage(id="m", content=content, role="assistant", status="completed", type="message")


class OpenAIAgents:
    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        agent = Agent[Any](name="tester", model=Scripted(calls), tools=list(await tools(box, user=user)))
        return await _read(agent, await Runner.run(agent, "go", run_config=CONFIG))

    async def resume(self, run: Run) -> Run:
        agent, result = run.state
        return await _read(agent, await Runner.run(agent, await resumable(result), run_config=CONFIG))


async def _read(agent: Agent[Any], result: RunResult) -> Run:
    outputs = [item for item in result.new_items if item.type == "tool_call_output_item"]
    results = {
        item.raw_item["call_id"]: Result(
            str(item.output), (item.custom_data or {}).get("status") == "failed", item.custom_data
        )
        for item in outputs
    }
    waits = [one["pending_id"] for one in await waiting(result)]
    return Run(results, waits, result.final_output, (agent, result))


class TestOpenAIAgents(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return OpenAIAgents()

    async def test_a_state_that_was_stored_waits_and_is_resumed(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        run = await driver.run(box, [Call("wipe_9", "wipe", {"disk": "sda"})], user=ANN)
        agent, result = run.state
        stored = result.to_state().to_string()

        again = await Runner.run(agent, await resumable(await RunState.from_string(agent, stored)), run_config=CONFIG)
        state = await RunState.from_string(agent, again.to_state().to_string())
        assert [one["pending_id"] for one in await waiting(state)] == run.waiting
        await box.approve(run.waiting[0], by=BOSS)
        ended = await Runner.run(agent, await resumable(state), run_config=CONFIG)

        assert (ended.final_output, shelf.wiped) == ("done", [("sda", ANN)])
