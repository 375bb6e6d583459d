"""The adapter for Semantic Kernel, in a separate environment: `make test-frameworks` runs this."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import ChatHistory, ChatMessageContent, FunctionCallContent, FunctionResultContent

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters.semantic_kernel import plugin, settle, wait, waiting


class Scripted(ChatCompletionClientBase):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    SUPPORTS_FUNCTION_CALLING = True
    calls: Any

    def service_url(self) -> str | None:
        return None

    async def _inner_get_chat_message_contents(self, chat_history: Any, settings: Any) -> list[ChatMessageContent]:
        if any(isinstance(item, FunctionResultContent) for message in chat_history for item in message.items):
            return [ChatMessageContent(role="assistant", content="done")]
        items = [
            FunctionCallContent(
                id=call.id,
                name=f"tools-{call.name}",
                arguments=call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
            )
            for call in self.calls
        ]
        return [ChatMessageContent(role="assistant", items=items)]

    def _update_function_choice_settings_callback(self) -> Any:
        return lambda *_: None

    def _verify_function_choice_settings(self, settings: Any) -> None:
        pass

    def _reset_function_choice_settings(self, settings: Any) -> None:
        pass


class SemanticKernel:
    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        kernel = Kernel()
        kernel.add_plugin(await plugin(box, user=user))
        kernel.add_filter("auto_function_invocation", wait)
        history = ChatHistory()
        history.add_user_message("go")
        return await self._go_on(kernel, Scripted(ai_model_id="m", calls=list(calls)), history)

    async def resume(self, run: Run) -> Run:
        kernel, model, stored = run.state
        history = copy.deepcopy(stored)
        if await settle(kernel, history.messages):
            return _read(kernel, model, history, None)
        return await self._go_on(kernel, model, history)

    async def _go_on(self, kernel: Kernel, model: Scripted, history: ChatHistory) -> Run:
        settings = PromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto())
        replies = await model.get_chat_message_contents(history, settings, kernel=kernel)
        return _read(kernel, model, history, None if waiting(history.messages) else str(replies[0]))


def _read(kernel: Kernel, model: Scripted, history: ChatHistory, answer: str | None) -> Run:
    found = [item for message in history for item in message.items if isinstance(item, FunctionResultContent)]
    ended = {one.id: _result(one) for one in found if "pending_id" not in one.metadata.get("toolpost", {})}
    results = {call.id: ended[call.id] for call in model.calls if call.id in ended}  # they are written as they end
    waits = [one["pending_id"] for one in waiting(history.messages)]
    return Run(results, waits, answer, (kernel, model, history))


def _result(item: FunctionResultContent) -> Result:
    text = str(item.result)
    failed = text.startswith(("An error occurred", "The tool call arguments are malformed"))
    return Result(text, failed, item.metadata.get("toolpost"))


class TestSemanticKernel(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return SemanticKernel()

    async def test_the_arguments_of_a_tool_may_have_names_that_the_kernel_uses(self, shelf: Shelf) -> None:
        from toolpost import Settings, tool  # noqa: PLC0415 - for this test only

        @tool(side_effects="pure")
        async def echo(service: str, arguments: list[str]) -> str:
            """Return the arguments."""
            return f"{service} {arguments}"

        async with Toolbox(tools=[echo], settings=Settings(data_dir=None)) as box:
            run = await SemanticKernel().run(box, [Call("odd_1", "echo", {"service": "a", "arguments": ["b"]})])

        assert run.results["odd_1"].text == "a ['b']"
