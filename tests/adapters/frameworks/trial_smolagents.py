"""The adapter for smolagents, in a separate environment: `make test-frameworks` runs this."""

import asyncio
import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from smolagents import ActionStep, CodeAgent, FinalAnswerStep, LogLevel, Model, ToolCallingAgent, ToolOutput
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    get_tool_json_schema,
)

from tests.adapters.frameworks.driver import Call, Driver, Result
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import ANN, BOSS, eventually
from tests.adapters.frameworks.waiting_suite import Ended, ThreadAdapterTests, WaitingDriver
from toolpost import Toolbox, tool
from toolpost.adapters.smolagents import SmolagentsTool, tools


class Scripted(Model):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self._messages = [calls, [Call("last", "final_answer", {"answer": "done"})]]

    def generate(self, *_: Any, tools_to_call_from: Any = (), **__: Any) -> ChatMessage:
        for listed in tools_to_call_from:
            get_tool_json_schema(listed)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[_made(c) for c in self._messages.pop(0)])


def _made(call: Call) -> ChatMessageToolCall:
    written = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    function = ChatMessageToolCallFunction(name=call.name, arguments=written)
    return ChatMessageToolCall(id=call.id, type="function", function=function)


class Smolagents(WaitingDriver):
    def __init__(self) -> None:
        super().__init__()
        self._tools: dict[tuple[Toolbox, str | None, float], list[SmolagentsTool]] = {}

    async def agent(
        self, box: Toolbox, calls: Sequence[Call], ended: Ended, *, user: str | None, wait_s: float
    ) -> None:
        wanted = (box, user, wait_s)
        if wanted not in self._tools:
            self._tools[wanted] = await tools(box, user=user, wait_s=wait_s)
        agent = ToolCallingAgent(self._tools[wanted], Scripted(calls), verbosity_level=LogLevel.OFF)

        def run() -> None:
            for event in agent.run("go", stream=True):
                match event:
                    case ToolOutput() if event.id in ended.results:
                        ended.results[event.id] = Result(event.observation, failed=False)
                    case ActionStep(error=error) if error is not None:
                        for id_ in ended.results:
                            ended.results[id_] = Result(str(error), failed=True)
                    case FinalAnswerStep():
                        ended.answer = str(event.output)

        await asyncio.to_thread(run)


class TestSmolagents(ThreadAdapterTests):
    def new_driver(self) -> Smolagents:
        return Smolagents()

    async def call_in_this_thread(self, box: Toolbox) -> None:
        (add,) = await tools(box, only=["add"])
        add(a=1, b=2)

    async def test_wrong_arguments_are_a_failure_that_names_them(self, driver: Driver, box: Toolbox) -> None:
        assert isinstance(driver, Smolagents)
        results = await driver.whole(box, [Call("bad_2", "add", {"a": "two", "b": 3})])

        assert results["bad_2"].failed
        assert "Argument a has type 'string'" in results["bad_2"].text  # the framework checks the types first

    async def test_code_of_an_agent_calls_tools_with_positions_and_names(self, box: Toolbox) -> None:
        code = "<code>\nfinal_answer(add(2, b=3))\n</code>"

        class Coder(Model):  # type: ignore[misc, unused-ignore]
            def generate(self, *_: Any, **__: Any) -> ChatMessage:
                return ChatMessage(role=MessageRole.ASSISTANT, content=code)

        agent = CodeAgent(await tools(box, only=["add"]), Coder(), verbosity_level=LogLevel.OFF)

        assert await asyncio.to_thread(agent.run, "go") == "5"

    async def test_the_user_is_read_from_a_context_variable(self, box: Toolbox, shelf: Shelf) -> None:
        current = ContextVar[str]("current")
        (wipe,) = await tools(box, user=current.get, only=["wipe"])
        current.set(ANN)

        calling = asyncio.create_task(asyncio.to_thread(wipe, disk="sda"))
        await box.approve((await eventually(box, 1))[0], by=BOSS)

        assert await calling == "sda is empty"
        assert shelf.wiped == [("sda", ANN)]

    async def test_schemas_have_the_types_that_the_framework_knows(self, box: Toolbox) -> None:
        properties = {
            "any": {"description": "Anything"},
            "choice": {"anyOf": [{"type": "integer"}, {"enum": ["all"]}]},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "part": {"$ref": "#/$defs/Part"},
            "either": {"type": ["integer", "null"]},
        }
        schema = {
            "type": "object",
            "properties": properties,
            "required": ["any", "part"],
            "$defs": {"Part": {"type": "object", "properties": {"size": {"type": "integer"}}}},
        }

        @tool(side_effects="pure", input_schema=schema)
        async def look(**arguments: Any) -> str:
            """Look."""
            return json.dumps(arguments, sort_keys=True)

        box.registry.register(look)
        (shown,) = await tools(box, only=["look"])
        function = get_tool_json_schema(shown)["function"]["parameters"]

        assert function["required"] == ["any", "part"]
        assert function["properties"]["maybe"]["type"] == "string"
        assert function["properties"]["part"]["properties"] == {"size": {"type": "integer"}}
        assert function["properties"]["either"]["type"] == "integer"
        called = await asyncio.to_thread(lambda: shown(any=1, part={}, choice=None, maybe=None))
        assert json.loads(called) == {"any": 1, "maybe": None, "part": {}}
