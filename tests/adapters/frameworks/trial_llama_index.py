"""The adapter for LlamaIndex, in a separate environment: `make test-frameworks` runs this."""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ToolCallResult
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.workflow import Context
from workflows.events import StopEvent, WorkflowIdleEvent

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox, tool
from toolpost.adapters.llama_index import CallsAnswered, CallWaiting, WorkflowProgress, tools

PENDING = Result("", failed=False)


class Scripted(FunctionCallingLLM):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    calls: list[Any]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    def _prepare_chat_with_tools(self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any) -> Any:
        for listed in tools:
            listed.metadata.to_openai_tool()
        return {"messages": chat_history}

    async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:
        answered = any(message.role == "tool" for message in messages)
        content = "done" if answered else ""
        return ChatResponse(message=ChatMessage(role="assistant", content=content), raw={"answered": answered})

    def get_tool_calls_from_response(self, response: ChatResponse, *_: Any, **__: Any) -> list[ToolSelection]:
        if response.raw["answered"]:
            return []
        return [ToolSelection(tool_id=one.id, tool_name=one.name, tool_kwargs=one.arguments) for one in self.calls]

    def chat(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    complete = stream_complete = stream_chat = acomplete = astream_complete = astream_chat = chat


class LlamaIndex:
    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        listed: Any = await tools(box, user=user)
        agent = FunctionAgent(tools=listed, llm=Scripted(calls=list(calls)), streaming=False)
        handler = agent.run(user_msg="go", memory=ChatMemoryBuffer.from_defaults())
        return await _until_idle(agent, handler, {one.id: PENDING for one in calls}, {})

    async def resume(self, run: Run) -> Run:
        agent, saved, results, asked = run.state
        handler = agent.run(ctx=Context.from_dict(agent, saved["context"]))
        await handler.ctx.store.set("memory", copy.deepcopy(saved["memory"]))  # the context keeps none
        handler.ctx.send_event(CallsAnswered())
        return await _until_idle(agent, handler, dict(results), asked)


async def _until_idle(agent: FunctionAgent, handler: Any, results: dict[str, Result], asked: Mapping[str, str]) -> Run:
    """Read the events of a run until it ends, or nothing in it goes on before an answer."""
    left = dict(asked)
    try:
        async for event in handler.stream_events(expose_internal=True):
            match event:
                case ToolCallResult():
                    output = event.tool_output
                    results[event.tool_id] = Result(output.content, output.is_error, output.raw_output)
                    left.pop(event.tool_id, None)
                case CallWaiting():
                    left[event.pending["tool_call_id"]] = event.pending["pending_id"]
                case StopEvent():
                    return Run(results, [], (await handler).response.content, (agent, None, results, {}))
                case WorkflowIdleEvent():
                    break
        memory = await handler.ctx.store.get("memory")
        saved = {"context": handler.ctx.to_dict(), "memory": copy.deepcopy(memory)}
        return Run(results, list(left.values()), None, (agent, saved, results, left))
    finally:
        await handler.cancel_run()


async def until_idle(handler: Any) -> AsyncIterator[Any]:
    async for event in handler.stream_events(expose_internal=True):
        if isinstance(event, WorkflowIdleEvent):
            return
        yield event


class TestLlamaIndex(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return LlamaIndex()

    async def test_progress_is_in_the_stream_of_the_workflow(self, box: Toolbox) -> None:
        listed: Any = await tools(box)
        agent = FunctionAgent(tools=listed, llm=Scripted(calls=[Call("page_2", "page")]), streaming=False)
        handler = agent.run(user_msg="go")

        received = [event.facts async for event in handler.stream_events() if isinstance(event, WorkflowProgress)]

        assert [(one["tool"], one["text"], one["fraction"]) for one in received] == [("page", "half of it", 0.5)]

    async def test_a_tool_outside_of_a_workflow_takes_positions_and_says_that_it_waits(
        self, box: Toolbox, shelf: Shelf
    ) -> None:
        listed = {one.metadata.get_name(): one for one in await tools(box, user="acme:ann")}

        added = await listed["add"].acall(2, b=3)
        called = await asyncio.to_thread(listed["add"].call, 4, 5)
        waiting = await listed["wipe"].acall(disk="sda")

        assert [(one.content, one.is_error) for one in (added, called)] == [("5", False), ("9", False)]
        assert waiting.is_error
        assert "waits for a person" in waiting.content
        assert shelf.wiped == []

    async def test_an_event_for_each_answer_gives_each_call_one_result(self, box: Toolbox, shelf: Shelf) -> None:
        calls = [Call(f"w{n}", "wipe", {"disk": f"sd{n}"}) for n in range(6)]
        agent = FunctionAgent(
            name="tester", description="", tools=await tools(box), llm=Scripted(calls=calls), streaming=False
        )
        handler = AgentWorkflow(agents=[agent], root_agent="tester").run(user_msg="go")
        results: list[str] = []
        async for event in handler.stream_events():
            match event:
                case CallWaiting():
                    await box.approve(event.pending["pending_id"], by="local:me")
                    handler.ctx.send_event(CallsAnswered())
                    handler.ctx.send_event(CallsAnswered())
                case ToolCallResult():
                    results.append(event.tool_output.content)

        assert (await handler).response.content == "done"
        assert sorted(results) == [f"sd{n} is empty" for n in range(6)]
        assert len(shelf.wiped) == 6

    async def test_long_descriptions_are_shortened_and_do_not_end_the_request(self, box: Toolbox) -> None:
        async def long() -> str:
            return ""

        long.__doc__ = "word " * 1000
        box.registry.register(tool(side_effects="pure")(long))
        (shown,) = await tools(box, only=["long"])

        described = shown.metadata.to_openai_tool()["function"]

        assert len(described["description"]) == 1024
        assert described["parameters"]["properties"] == {}

    async def test_the_user_is_read_from_the_state_of_the_workflow(self, box: Toolbox, shelf: Shelf) -> None:
        async def user(ctx: Context) -> str:
            return str(await ctx.store.get("user"))

        listed: Any = await tools(box, user=user)
        agent = FunctionAgent(tools=listed, llm=Scripted(calls=[Call("w", "wipe", {"disk": "sda"})]), streaming=False)
        ctx = Context(agent)
        await ctx.store.set("user", "acme:ann")

        handler = agent.run(user_msg="go", ctx=ctx)
        waiting = [event async for event in until_idle(handler) if isinstance(event, CallWaiting)]
        await box.approve(waiting[0].pending["pending_id"], by="acme:boss")
        handler.ctx.send_event(CallsAnswered())
        await handler

        assert shelf.wiped == [("sda", "acme:ann")]
