"""The adapter for CrewAI, in a separate environment: `make test-frameworks` runs this."""

import asyncio
import json
import os
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import Agent, BaseLLM, Crew, Task
from crewai.utilities.agent_utils import convert_tools_to_openai_schema
from pydantic import Field

from tests.adapters.frameworks.driver import Call, Result
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import ANN, BOSS, eventually
from tests.adapters.frameworks.waiting_suite import Ended, ThreadAdapterTests, WaitingDriver
from toolpost import Toolbox, tool
from toolpost.adapters.crewai import CrewAITool, tools


class Scripted(BaseLLM):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    calls: list[Any]
    said: dict[str, str] = Field(default_factory=dict)

    def call(self, messages: Any, tools: Any = None, **_: Any) -> Any:
        answers = {one["tool_call_id"]: one["content"] for one in messages if one.get("role") == "tool"}
        self.said.update(answers)
        if answers:
            return "done"
        return [
            {
                "id": one.id,
                "type": "function",
                "function": {
                    "name": one.name,
                    "arguments": one.arguments if isinstance(one.arguments, str) else json.dumps(one.arguments),
                },
            }
            for one in self.calls
        ]

    def supports_function_calling(self) -> bool:
        return True


class CrewAI(WaitingDriver):
    def __init__(self) -> None:
        super().__init__()
        self._tools: dict[tuple[Toolbox, str | None, float], list[CrewAITool]] = {}

    async def agent(
        self, box: Toolbox, calls: Sequence[Call], ended: Ended, *, user: str | None, wait_s: float
    ) -> None:
        wanted = (box, user, wait_s)
        if wanted not in self._tools:
            self._tools[wanted] = await tools(box, user=user, wait_s=wait_s)
        llm = Scripted(model="scripted", calls=list(calls))
        agent = Agent(role="tester", goal="test", backstory="none", llm=llm, tools=self._tools[wanted])
        done = await asyncio.to_thread(agent.kickoff, "go")
        for id_, text in llm.said.items():
            ended.results[id_] = Result(text, any(record.message in text for record in done.tool_failures))
        ended.answer = done.raw


class TestCrewAI(ThreadAdapterTests):
    def new_driver(self) -> CrewAI:
        return CrewAI()

    async def call_in_this_thread(self, box: Toolbox) -> None:
        (add,) = await tools(box, only=["add"])
        add.run(a=1, b=2)

    async def test_the_user_is_read_from_a_context_variable(self, box: Toolbox, shelf: Shelf) -> None:
        current = ContextVar[str]("current")
        (wipe,) = await tools(box, user=current.get, only=["wipe"])
        current.set(ANN)

        calling = asyncio.create_task(wipe.arun(disk="sda"))
        await box.approve((await eventually(box, 1))[0], by=BOSS)

        assert await calling == "sda is empty"
        assert shelf.wiped == [("sda", ANN)]

    async def test_a_repeated_call_is_made_again_and_not_read_from_the_cache(self, box: Toolbox, shelf: Shelf) -> None:
        driver = self.new_driver()
        calls = [Call("ok_1", "add", {"a": 2, "b": 3}), Call("ok_2", "add", {"a": 2, "b": 3})]

        results = await driver.whole(box, calls)

        assert [result.text for result in results.values()] == ["5", "5"]
        assert shelf.added == [(2, 3), (2, 3)]

    async def test_models_see_a_strict_schema_and_null_is_left_out(self, box: Toolbox) -> None:
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}}

        @tool(side_effects="pure", input_schema=schema)
        async def look(**arguments: Any) -> str:
            """Look."""
            return json.dumps(arguments)

        box.registry.register(look)
        (listed,) = await tools(box, only=["look"])
        shown: Any = convert_tools_to_openai_schema([listed])[0][0]["function"]["parameters"]

        assert (shown["required"], shown["additionalProperties"]) == (["size"], False)
        assert shown["properties"]["size"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
        assert await listed.arun(size=None) == "{}"

    async def test_models_without_function_calling_call_tools_by_text(self, box: Toolbox, shelf: Shelf) -> None:
        texts = ["Thought: go\nAction: {}\nAction Input: {}", "Thought: I know\nFinal Answer: done"]
        failures: list[list[str]] = []
        for name, arguments in (("add", '{"a": 2, "b": 3}'), ("fail", "{}")):
            llm = Writing(model="scripted", texts=[texts[0].format(name, arguments), texts[1]])
            agent = Agent(role="tester", goal="test", backstory="none", llm=llm, tools=await tools(box))
            task = Task(description="go", expected_output="a word", agent=agent)
            done = await Crew(agents=[agent], tasks=[task]).kickoff_async()
            failures.append([record.message for record in done.tasks_output[0].tool_failures])

        assert shelf.added == [(2, 3)]
        assert failures[0] == []
        assert "no luck today" in failures[1][0]
        assert len(failures[1]) == 1


class Writing(BaseLLM):  # type: ignore[misc, unused-ignore]
    """A model that writes its calls as text."""

    texts: list[str]

    def call(self, *_: Any, **__: Any) -> Any:
        return self.texts.pop(0)

    def supports_function_calling(self) -> bool:
        return False
