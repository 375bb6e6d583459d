"""The adapter for AutoGen, in a separate environment: `make test-frameworks` runs this."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

from tests.adapters.frameworks.driver import Call, Result
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import ANN
from tests.adapters.frameworks.waiting_suite import Ended, WaitingAdapterTests, WaitingDriver
from toolpost import Toolbox
from toolpost.adapters.autogen import ToolboxWorkbench, workbench

USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)


class Scripted(ChatCompletionClient):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    async def create(self, messages: Sequence[Any], **_: Any) -> CreateResult:
        answered = any(message.type == "FunctionExecutionResultMessage" for message in messages)
        made = [
            FunctionCall(
                id=one.id,
                name=one.name,
                arguments=one.arguments if isinstance(one.arguments, str) else json.dumps(one.arguments),
            )
            for one in self._calls
        ]
        content: Any = "done" if answered else made
        return CreateResult(
            finish_reason="stop" if answered else "function_calls", content=content, usage=USAGE, cached=False
        )

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )

    capabilities = model_info

    def unused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    create_stream = actual_usage = total_usage = count_tokens = remaining_tokens = unused

    async def close(self) -> None: ...


class AutoGen(WaitingDriver):
    def __init__(self) -> None:
        super().__init__()
        self._benches: dict[tuple[Toolbox, str | None, float], ToolboxWorkbench] = {}

    async def agent(
        self, box: Toolbox, calls: Sequence[Call], ended: Ended, *, user: str | None, wait_s: float
    ) -> None:
        wanted = (box, user, wait_s)
        bench = self._benches.setdefault(wanted, workbench(box, user=user, wait_s=wait_s))
        agent = AssistantAgent("tester", Scripted(calls), workbench=bench, max_tool_iterations=3)
        token = CancellationToken()
        try:
            async for event in agent.run_stream(task="go", cancellation_token=token):
                match event:
                    case ToolCallExecutionEvent():
                        for one in event.content:
                            ended.results[one.call_id] = Result(one.content, bool(one.is_error))
                    case TextMessage(source="tester"):
                        ended.answer = event.content
        finally:
            token.cancel()  # which ends the calls of a run; the framework runs them in tasks of their own


class TestAutoGen(WaitingAdapterTests):
    def new_driver(self) -> AutoGen:
        return AutoGen()

    async def test_a_cancellation_token_stops_a_call(self, box: Toolbox, shelf: Shelf) -> None:
        token = CancellationToken()
        calling = asyncio.create_task(workbench(box).call_tool("wait", {}, token, "slow_2"))
        await shelf.started.wait()

        token.cancel()

        with pytest.raises(asyncio.CancelledError):
            await calling
        async with asyncio.timeout(30):
            await shelf.stopped.wait()

    async def test_a_repeated_call_id_has_the_outcome_of_the_first_in_its_thread(
        self, box: Toolbox, shelf: Shelf
    ) -> None:
        for thread in ("a", "a", "b"):
            bench = workbench(box, user=ANN, thread=thread, wait_s=0.01)
            waiting = await bench.call_tool("wipe", {"disk": "sda"}, call_id="c1")
            assert waiting.is_error

        assert len(await box.pending.list(by="acme:boss")) == 2

    async def test_a_tool_that_is_not_in_the_workbench_is_an_error(self, box: Toolbox) -> None:
        result = await workbench(box, only=["add"]).call_tool("wipe", {"disk": "sda"})

        assert (result.is_error, result.to_text()) == (True, "no tool 'wipe' is in the workbench")
