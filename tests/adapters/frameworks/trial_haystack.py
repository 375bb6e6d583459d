"""The adapter for Haystack, in a separate environment: `make test-frameworks` runs this."""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import pytest
from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import ANN, BOSS, AdapterTests
from toolpost import Toolbox
from toolpost.adapters.haystack import hooks, tools, waiting


@component
class Scripted:
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        if any(message.tool_call_results for message in messages):
            return {"replies": [ChatMessage.from_assistant("done")]}
        made = [ToolCall(call.name, dict(call.arguments), call.id) for call in self._calls]  # type: ignore[arg-type, unused-ignore]
        return {"replies": [ChatMessage.from_assistant(tool_calls=made)]}


class Haystack:
    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        listed = await tools(box, user=user)
        agent = Agent(chat_generator=Scripted(calls), tools=listed, hooks=hooks(listed))
        return _read(agent, await agent.run_async(messages=[ChatMessage.from_user("go")]))

    async def resume(self, run: Run) -> Run:
        agent, result = run.state
        return _read(agent, await agent.run_async(messages=copy.deepcopy(result["messages"])))


def _read(agent: Agent, result: Any) -> Run:
    found = [(one, message.meta["toolpost"]) for message in result["messages"] for one in message.tool_call_results]
    results = {one.origin.id: Result(one.result, one.error, data) for one, data in found}
    waits = [one["pending_id"] for one in waiting(result)]
    return Run(results, waits, result["last_message"].text, (agent, result))


class TestHaystack(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return Haystack()

    async def test_arguments_that_are_a_broken_text_are_a_failure(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        with pytest.raises(ValueError, match="dictionary update sequence"):  # no message may have such a call
            await driver.run(box, [Call("bad_3", "add", '{"a": 2, ')])

    async def test_a_blocking_run_in_another_thread_stops_and_resumes(self, box: Toolbox, shelf: Shelf) -> None:
        listed = await tools(box, user=ANN)
        agent = Agent(
            chat_generator=Scripted([Call("wipe_9", "wipe", {"disk": "sda"})]), tools=listed, hooks=hooks(listed)
        )

        result = await asyncio.to_thread(agent.run, messages=[ChatMessage.from_user("go")])
        await box.approve(waiting(result)[0]["pending_id"], by=BOSS)
        result = await asyncio.to_thread(agent.run, messages=result["messages"])

        assert result["last_message"].text == "done"
        assert shelf.wiped == [("sda", ANN)]
